"""The vLLM adapter: the only package that imports vLLM.

The scheduler and its parts run in vLLM's EngineCore process. If no zone is declared, each subclass of a vLLM class
behaves exactly like that class.
"""
