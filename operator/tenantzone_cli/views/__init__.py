"""Commands that show zones and pools."""
