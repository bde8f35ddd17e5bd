"""What a quiet tenant gets beside a noisy neighbour: stock vLLM, what others offer, and zones, in one run."""
