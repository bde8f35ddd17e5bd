"""What the operator and the engines agree on: the runtime config, the engine's report, and the sealed binding.

Both sides import this package and neither imports the other. It does no I/O of its own.
"""
