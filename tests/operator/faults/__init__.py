"""A package, so that pytest knows how long the tests in it share their operator."""
