"""Engines side by side: each with cores of its own."""

import os

import pytest

from hack.demo.engines import cores_for


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
