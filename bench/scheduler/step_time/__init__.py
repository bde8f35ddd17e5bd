"""Measures the cost of zones in a scheduling step, as a ratio to vLLM's own scheduler.

All schedulers run in one process, without a model, under the same load. The arms run alternately, step by step, and the
bench compares the CPU time that each needs for the same step. Work with zones that runs outside of steps, on a separate
thread, is shown separately, because it depends on elapsed time rather than on steps.
"""
