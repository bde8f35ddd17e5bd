"""A page to look at: pools, zones, the live block map, the last minutes. Read-only, and only by way of a port-forward.

It needs no leader: each replica has the store from its own watches, and asks the engines itself while somebody looks.
"""
