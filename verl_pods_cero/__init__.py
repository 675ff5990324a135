"""PODS rollout filtering and CERO rollout allocation for verl, as a plugin."""

__version__ = "0.1.0"
