"""The local disk tier: sealed chunks in files, with each zone's share of the bytes; no vLLM.

``tier`` makes decisions on the caller's thread, using only data in memory. ``objects`` moves bytes on threads of
``workers``. So a slow or hanging disk blocks only threads of this package.
"""
