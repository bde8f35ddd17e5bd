"""The admin port of the engine: its HTTP server, and the check of its clients' tokens."""
