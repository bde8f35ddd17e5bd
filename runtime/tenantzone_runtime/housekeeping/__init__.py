"""What goes on beside an engine's steps: configs, time, the report, the metrics, the journal.

It knows an engine by one port, ``engine.ServedEngine``, and the zones by their core. It imports no engine.
"""
