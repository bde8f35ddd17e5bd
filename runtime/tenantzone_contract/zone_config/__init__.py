"""The declared zones and pools, and the config that the operator makes of them for engines."""
