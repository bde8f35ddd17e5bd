"""The KV-cache manager: tells many engines where KV-cache blocks are stored. It does not handle the blocks' bytes.

``core`` makes the decisions without I/O, ``index`` stores the records, ``storages`` accesses the storages of blocks,
and ``server`` answers over HTTP and gRPC. The names of objects and calls are explained in docs/kv-cache-manager.md.
"""
