"""The local disk tier: sealed chunks in files, with each zone's share of the bytes; no vLLM.

``tier`` decides, on the caller's thread, from memory only; ``objects`` moves bytes, on threads of ``workers``. So a
slow or hanging disk blocks only threads of this package.
"""
