"""Bounds the CPU time of vLLM's parsers for tool calls and reasoning."""
