"""A release: one version, the schemas that it promises, and its files."""
