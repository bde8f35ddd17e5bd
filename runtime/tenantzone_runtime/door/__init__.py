"""The front door: who asks. ASGI middleware in vLLM's API server that binds each request to a tenant and seals that."""
