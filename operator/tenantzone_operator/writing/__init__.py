"""Writes statuses and Events: awaited ones first, none twice, and none that delays others."""
