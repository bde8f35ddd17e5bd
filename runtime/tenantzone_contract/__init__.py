"""What the operator and the engines agree on: the runtime config and the engine's report.

Both sides import this package and neither imports the other. It does no I/O of its own, except that ``tls`` reads
certificates.
"""
