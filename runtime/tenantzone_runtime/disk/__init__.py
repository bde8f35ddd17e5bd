"""The local disk tier. It stores encrypted chunks in files, and limits the bytes of each zone. It does not import vLLM.

``tier`` makes decisions on the caller's thread, using only data in memory. Threads from ``workers`` read and write the
files through ``files.objects``. So a slow or hanging disk blocks only these threads.
"""
