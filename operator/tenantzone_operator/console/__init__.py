"""The console: a read-only page with pools, zones and block maps, for users who may forward a port to the pod.

It needs no leader: each replica has the store from its own watches, and asks the engines itself while a page is open.
"""
