"""Grammars are compiled in turns: one tenant's many grammars delay another's single one by at most one."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from hack.harness.scheduler import SEAL_KEY
from tenantzone_runtime.engine.grammars.grammar_compilation import compile_in_turns
from tenantzone_runtime.seal import SEAL_ARGUMENT, seal


def request_of(tenant, name, *, salt="salt", sealed=None):
    extra = {SEAL_ARGUMENT: seal(SEAL_KEY, tenant, "salt") if sealed is None else sealed}
    return SimpleNamespace(name=name, sampling_params=SimpleNamespace(extra_args=extra), cache_salt=salt)


@pytest.fixture
def manager():
    manager = SimpleNamespace(executor=ThreadPoolExecutor(1))
    compile_in_turns(manager, SEAL_KEY, threads=1)
    yield manager
    manager.executor.shutdown()


@pytest.fixture
def go_ahead(manager):
    """While it is shut, what is submitted waits."""
    go_ahead = threading.Event()
    begun = threading.Event()

    def wait(request):
        begun.set()
        assert go_ahead.wait(60)

    manager.executor.submit(wait, request_of("other", "first"))
    assert begun.wait(60)
    return go_ahead


def order_of(manager, go_ahead, requests):
    done = []
    futures = [manager.executor.submit(lambda request: done.append(request.name), request) for request in requests]
    go_ahead.set()
    for future in futures:
        future.result(60)
    return done


def test_tenants_take_turns(manager, go_ahead):
    requests = [request_of("acme", f"acme {number}") for number in range(4)]
    requests += [request_of("burst", f"burst {number}") for number in range(2)]
    assert order_of(manager, go_ahead, requests) == ["acme 0", "burst 0", "acme 1", "burst 1", "acme 2", "acme 3"]


def test_what_takes_hours_holds_up_its_own_tenant_alone():
    manager = SimpleNamespace(executor=ThreadPoolExecutor(1))
    compile_in_turns(manager, SEAL_KEY, threads=2)
    may_end = threading.Event()
    slow = [manager.executor.submit(lambda _: may_end.wait(60), request_of("acme", "slow")) for _ in range(3)]
    try:
        assert manager.executor.submit(lambda request: request.name, request_of("burst", "burst")).result(30) == "burst"
        assert not any(future.done() for future in slow)
    finally:
        may_end.set()
    assert all(future.result(60) for future in slow)
    manager.executor.shutdown()


def test_what_shows_no_seal_or_a_foreign_one_shares_one_turn(manager, go_ahead):
    forged = [request_of("burst", f"forged {number}", salt="another") for number in range(2)]
    unsealed = [request_of("", f"unsealed {number}", sealed=odd) for number, odd in enumerate(("", 5))]
    requests = [*forged, *unsealed, request_of("acme", "acme")]
    assert order_of(manager, go_ahead, requests) == ["forged 0", "acme", "forged 1", "unsealed 0", "unsealed 1"]


def test_a_grammar_that_fails_says_so_and_the_next_is_compiled(manager):
    def fail(request):
        raise ValueError("no grammar")

    failing = manager.executor.submit(fail, request_of("acme", "bad"))
    good = manager.executor.submit(lambda request: request.name, request_of("acme", "good"))
    with pytest.raises(ValueError, match="no grammar"):
        failing.result(60)
    assert good.result(60) == "good"


def test_an_engine_without_a_tokenizer_compiles_none():
    manager = SimpleNamespace()
    compile_in_turns(manager, SEAL_KEY)
    assert vars(manager) == {}
