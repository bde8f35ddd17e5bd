"""Pure functions that compute statuses, conditions and Events of zones and pools from engines' reports."""
