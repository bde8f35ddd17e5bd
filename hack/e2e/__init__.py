"""End-to-end tests: the product as shipped, on a real cluster."""
