"""The KV-cache manager: an index of the locations of KV-cache blocks for many engines, which access the bytes directly.

``core`` makes the decisions without I/O, ``index`` stores the records, ``storages`` accesses the storages of blocks,
and ``server`` answers over HTTP and gRPC. The names of objects and calls are explained in docs/kv-cache-manager.md.
"""
