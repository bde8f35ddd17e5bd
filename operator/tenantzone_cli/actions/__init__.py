"""Commands that change something."""
