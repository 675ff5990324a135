"""One Ray session a Hydra job."""

from __future__ import annotations

from typing import Any

from hydra.experimental.callback import Callback


class RayPerJob(Callback):
    """Ends the job's Ray session with the job.

    `verl.trainer.main_ppo` takes a running Ray as it finds it: without this, the second job of a
    multirun would run inside the session of the first, with that one's environment and resources.
    """

    def on_job_end(self, **_kwargs: Any) -> None:
        """Shut Ray down, if this process started it."""
        import ray

        if ray.is_initialized():
            ray.shutdown()
