"""Responses of the frontend: refusals and errors, in the format of the API that the client called."""
