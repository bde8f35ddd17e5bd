"""One implementation of all calls (``service``), served over HTTP and gRPC."""
