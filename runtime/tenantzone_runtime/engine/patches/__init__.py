"""Changes of vLLM outside the classes that its flags let us name."""
