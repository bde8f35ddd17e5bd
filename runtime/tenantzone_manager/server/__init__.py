"""The servers: all calls are implemented once, in ``service``, and served over HTTP and gRPC."""
