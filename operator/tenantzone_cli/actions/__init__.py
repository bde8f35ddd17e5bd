"""Commands that are neither ``doctor`` nor views of zones, such as ``purge`` and ``migrate``."""
