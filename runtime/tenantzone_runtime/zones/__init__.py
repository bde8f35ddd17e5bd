"""The zone core: which zone owns which block, and which zones may allocate, lend, and must return blocks.

Pure: no I/O, no vLLM, no wall clock of its own (times are passed in, in seconds of any monotonic clock). The rules are
those of docs/architecture.md; amounts are KV-cache blocks of one engine.
"""
