"""The statuses of zones and pools: from engines' reports to conditions and Events; pure."""
