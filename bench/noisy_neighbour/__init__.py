"""What a quiet tenant gets next to a noisy neighbour: stock vLLM, other solutions, and zones, in one run."""
