"""The KV-cache manager: the locations of KV-cache blocks, for many engines. The bytes do not pass through it.

``core`` decides and does no I/O, ``index`` keeps the records, ``storages`` access the places where blocks are stored,
``server`` answers over HTTP and gRPC. The names of objects and calls are those of docs/kv-cache-manager.md.
"""
