"""What is said of zones and pools: from what engines report to conditions and notices; pure."""
