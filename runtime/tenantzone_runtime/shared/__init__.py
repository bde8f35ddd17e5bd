"""The shared tier: sealed chunks in storages that engines share, found by a KV-cache manager; no vLLM.

``tier`` decides on the caller's thread and waits for nothing; threads of ``disk.workers`` ask the manager (``client``)
and move bytes (``storages``). So a manager or a storage that is slow, or gone, costs hits and holds up nobody.
"""
