"""Messages as `make manager-api` writes them from manager.proto. Not edited by hand."""
