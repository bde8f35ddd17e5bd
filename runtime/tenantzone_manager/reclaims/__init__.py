"""Evicts and deletes blocks, and corrects the counts of what is left."""
