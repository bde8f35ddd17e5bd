"""Work outside an engine's steps: configs, timeouts, the report, the metrics, the journal.

It uses an engine through one interface, ``engine.ServedEngine``, and the zones through their core. It imports no
engine.
"""
