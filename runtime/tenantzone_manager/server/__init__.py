"""One implementation of all calls (``service``), asked over HTTP and over gRPC."""
