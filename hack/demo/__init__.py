"""The demo: one real engine with zones, one stock engine, a real control plane, and a story told with real requests.

Nothing here is part of the product.
"""
