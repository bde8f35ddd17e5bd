"""The frontend: ASGI middleware in vLLM's API server that binds each request to a tenant and seals the binding."""
