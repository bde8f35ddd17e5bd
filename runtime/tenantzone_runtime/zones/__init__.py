"""The zone core: who owns which block, and who may take, lend, and must give back.

Pure: no I/O, no vLLM, no wall clock of its own (times are passed in, in seconds of any monotonic clock). The rules are
those of docs/architecture.md; amounts are KV-cache blocks of one engine.
"""
