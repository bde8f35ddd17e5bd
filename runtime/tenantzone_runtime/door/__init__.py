"""The name of the frontend in release 0.1: ``--middleware`` values of that release work for one more release."""
