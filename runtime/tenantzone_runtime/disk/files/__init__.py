"""The files of the disk tier: their layout, their encryption, and access to them."""
