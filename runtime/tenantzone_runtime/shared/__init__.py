"""The shared tier. It stores encrypted chunks in storages that engines share. It does not import vLLM.

A KV-cache manager knows where the chunks are. ``tier`` makes decisions on the caller's thread, and never blocks.
Threads from ``disk.workers`` query the manager through ``manager.client``, and read and write chunks through
``storage.storages``. So a slow or missing manager or storage only leads to fewer hits, and never blocks a caller.
"""
