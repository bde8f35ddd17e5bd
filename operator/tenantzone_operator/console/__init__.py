"""The console: a read-only page with pools, zones and block maps, for users who may forward a port to the pod.

Any replica can serve it, because each replica fills its store from its own watches, and polls the engines itself while
a page is open.
"""
