"""The console: a read-only web page with pools, zones and block maps, for users who may forward a port to the pod.

Any replica can serve the console, because each replica fills its store from its own watches, and polls the engines
itself while a page is open.
"""
