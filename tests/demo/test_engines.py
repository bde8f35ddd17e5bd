"""Engines side by side: each with an address and with cores of its own."""

import os
import socket

import pytest

from hack.demo.engines import cores_for, free_address


def test_an_address_whose_port_is_taken_is_passed_over():
    first = free_address(8123)
    with socket.create_server((first, 8123)):
        assert free_address(8123) != first


def test_an_address_that_another_engine_got_is_passed_over():
    first = free_address(8123)
    assert free_address(8123, taken=(first,)) != first


@pytest.mark.parametrize(
    ("cores", "shares"),
    [
        pytest.param({0, 1}, ["0", "1"], id="two cores: one each"),
        pytest.param({2, 3, 6, 7}, ["2,3", "6,7"], id="the cores that the process may use, in halves"),
        pytest.param({5}, ["5", "5"], id="a single core is shared"),
    ],
)
def test_engines_share_the_cores(monkeypatch: pytest.MonkeyPatch, cores: set[int], shares: list[str]):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    assert [cores_for(index, 2) for index in (0, 1)] == shares
