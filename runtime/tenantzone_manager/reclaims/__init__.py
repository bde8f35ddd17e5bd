"""Evicts and deletes blocks, and corrects the counts of bytes and blocks."""
