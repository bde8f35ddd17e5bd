"""Who asks: the ways in which a request's tenant is known. A pool has exactly one, and nothing else is looked at."""
