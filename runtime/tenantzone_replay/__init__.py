"""What zones would do for a recorded load: vLLM's real scheduler, stock's and ours, over a trace in virtual time."""
