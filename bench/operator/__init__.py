"""The operator with thousands of zones: a real API server, engines that speak the real report."""
