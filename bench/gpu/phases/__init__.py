"""The phases of the default group."""
