"""Everything the CPU quickstart needs: a task, a model and a run that shows what came of it."""
