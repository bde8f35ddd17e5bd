"""Changes of vLLM outside the classes that its flags let us name.

Each module names the hook in vLLM that would remove it.
"""
