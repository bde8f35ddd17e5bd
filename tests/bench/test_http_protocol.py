"""The bench of HTTP protocols queries real servers, and draws the right conclusions."""

import asyncio
from dataclasses import replace

import pytest

from bench.frontend.http_protocol import LOADS, PROTOCOLS, Rounds, Server, ask, await_ready, measure, table


@pytest.fixture(scope="module")
def servers():
    with Server(PROTOCOLS["stock httptools"], {0}) as stock, Server(PROTOCOLS["bounded"], {0}) as bounded:
        for server in (stock, bounded):
            asyncio.run(await_ready(server.port))
        yield {"stock httptools": stock, "bounded": bounded}


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_each_load_is_answered_by_both(servers, load):
    seen = measure(servers, [replace(load, requests=4, at_once=2)], rounds=1)
    for found in seen[load.name].values():
        assert len(found.cpu_seconds) == len(found.per_second) == 1
        assert found.per_second[0] > 0


def test_an_answer_that_is_none_ends_it(servers):
    with pytest.raises(RuntimeError, match=r"the server answers b'HTTP/1\.1 431 "):
        asyncio.run(ask(servers["bounded"].port, replace(LOADS[0], requests=1, at_once=1, path="/" + "a" * 65_400)))


def test_ratios_are_of_the_same_round():
    stock = Rounds(cpu_seconds=[1e-4, 4e-4, 2e-4], per_second=[1000.0, 2000.0, 3000.0])
    bounded = Rounds(cpu_seconds=[2e-4, 4e-4, 1e-4], per_second=[10.0, 20.0, 30.0])
    _, of_stock, of_bounded = table({"a load": {"stock httptools": stock, "bounded": bounded}}).splitlines()
    assert of_stock.split()[4:] == ["2,000", "200", "µs", "1.000", "(1.000", "to", "1.000)"]
    assert of_bounded.split() == ["a", "load", "bounded", "20", "200", "µs", "1.000", "(0.500", "to", "2.000)"]
