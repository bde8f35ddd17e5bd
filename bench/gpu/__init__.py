"""Stock vLLM and vLLM with zones on one card: equal answers, a noisy neighbour, a reclaim, and throughput."""
