"""The vLLM adapter: the only package that imports vLLM.

It runs in vLLM's EngineCore process. If no zone is declared, every class here behaves exactly like the stock class that
it extends.
"""
