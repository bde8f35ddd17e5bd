"""Proves docs/upstream.md: counts what the adapter overrides and replaces in vLLM, and runs tests on a patched copy."""
