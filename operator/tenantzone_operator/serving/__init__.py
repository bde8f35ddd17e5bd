"""What the operator tells over HTTP: health and metrics."""
