"""The KV-cache manager: which blocks are in which storage, for many engines; bytes never pass it.

``core`` decides and does no I/O, ``index`` keeps what is known, ``storages`` are the places that blocks lie in,
``server`` answers over HTTP and gRPC. The names of objects and calls are those of docs/kv-cache-manager.md.
"""
