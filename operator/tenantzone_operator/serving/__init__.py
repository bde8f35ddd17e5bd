"""The operator's HTTP endpoints: health and metrics."""
