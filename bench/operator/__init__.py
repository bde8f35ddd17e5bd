"""Measures the operator with thousands of zones, on a real API server and with engines that send real reports."""
