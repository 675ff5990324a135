"""The options of a run: the schema, its checks, and what they make of verl's configuration."""
