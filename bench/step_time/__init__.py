"""What zones cost in a scheduling step, as a ratio to vLLM's own scheduler.

All schedulers run in one process, without a model, each under the same load. The arms take turns, step by step, and
what is compared is the processor time that each needs for the same step. What a zone's engine does beside the steps, on
a thread of its own, is shown apart: it comes by the second, not by the step.
"""
