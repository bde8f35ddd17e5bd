"""The shared tier: sealed chunks in storages that engines share, located by a KV-cache manager; no vLLM.

``tier`` makes decisions on the caller's thread and never blocks. Threads of ``disk.workers`` query the manager
(``client``) and move bytes (``storages``). So a slow or missing manager or storage costs hits, but blocks no caller.
"""
