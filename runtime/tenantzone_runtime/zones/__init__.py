"""The zone core: which zone owns which block, and which zones may allocate, may lend, or must return blocks.

The package does no I/O, does not import vLLM, and reads no clock: times are passed in, in seconds of any monotonic
clock. docs/algebra.md has the rules. Amounts are KV-cache blocks of one engine.
"""
