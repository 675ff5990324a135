"""The commands: they read logs, data and configurations, and no training needs them."""
