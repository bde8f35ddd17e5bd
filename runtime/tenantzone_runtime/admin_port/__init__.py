"""The admin port, and who may use it."""
