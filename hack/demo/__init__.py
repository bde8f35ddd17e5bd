"""The demo: a real engine with zones, a stock engine, a real control plane, and a script of real requests.

Nothing here is part of the product.
"""
