"""Patches of vLLM where none of vLLM's flags lets us replace a class.

Each module describes the change of vLLM that would make the module unnecessary.
"""
