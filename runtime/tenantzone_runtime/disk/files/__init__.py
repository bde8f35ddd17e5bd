"""The disk tier's files: their paths, their encryption, and the operations on them."""
