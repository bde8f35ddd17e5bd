"""Collects no garbage while tests are collected.

A pytest plugin. Modules, functions and tests stay for the whole run, and each process of `make test` makes millions of
objects of them. Searching these for garbage again and again took a third of the processor time of collecting the tests.
"""

import gc
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        # No later collection scans what stays anyway.
        gc.freeze()
        gc.enable()
