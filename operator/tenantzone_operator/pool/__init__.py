"""The work for one pool, and for all pools: plan, delivery, engines, statuses."""
