"""The cost of zones in a scheduling step, as a ratio to vLLM's own scheduler.

All schedulers run in one process, without a model, each under the same load. The arms take turns, step by step; the
comparison is of the processor time that each needs for the same step. Work of a zone's engine outside the steps, on its
own thread, is shown separately: it depends on seconds, not on steps.
"""
