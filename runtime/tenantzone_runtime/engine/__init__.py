"""The vLLM adapter: the only package that imports vLLM.

It runs in vLLM's EngineCore process. Where no zone is declared, every class here behaves exactly as the stock class
that it extends.
"""
