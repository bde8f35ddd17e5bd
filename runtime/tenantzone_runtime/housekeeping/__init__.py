"""Housekeeping: the work outside an engine's steps, on configs, timeouts, the report, the metrics and the journal.

Housekeeping uses an engine only through the interface ``engine.ServedEngine``, and does not import any engine. It
accesses the zones directly.
"""
