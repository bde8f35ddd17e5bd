"""The operator's own metrics."""
