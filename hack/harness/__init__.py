"""Shared by tests and benches: vLLM's scheduler in a process, a bad network, engines with false reports."""
