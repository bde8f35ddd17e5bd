"""The report of a run of the GPU bench: its figures, its judgement by the targets, and its plots."""
