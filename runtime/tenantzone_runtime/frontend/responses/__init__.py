"""Refusals and errors, in the format of the API that the client called."""
