"""The work for one pool, and for all pools: plan, config publishing, engines, statuses."""
