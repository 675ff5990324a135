"""Hydra primary configs, found by `--config-name` wherever the plugin is installed."""
