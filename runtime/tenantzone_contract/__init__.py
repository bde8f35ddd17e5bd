"""Code that the operator, the engines and the KV-cache manager share, above all the runtime config and the report.

The operator and the engines import this package instead of each other.
"""
