"""The connections of clients."""
