"""The models that the demo and the tests serve, and how they are made."""
