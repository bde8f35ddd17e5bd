"""A package, so that pytest knows how long its tests share their operator."""
