"""``migrate``: whether it pays, with both engines driven through their admin ports."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_cli.actions.migrate import MigrateError, Move, estimate, table
from tenantzone_cli.api import Api
from tenantzone_cli.live import engines_of
from tenantzone_cli.resources import Pod, Pool
from tenantzone_contract.cache.migration import MigrationReport
from tests.cli.moving_engines import MovingEngine

PROMPTS = ((b"a1", b"a2"), (b"b1", b"b2", b"b3"))


def seen(left: int, speed: float | None, **fields: object) -> MigrationReport:
    return MigrationReport(
        tenant="acme", chunk_bytes=1000, chunk_tokens=10, left=left, prompt_tokens_per_second=speed, **fields
    )


@given(st.integers(0, 10**6), st.floats(1.0, 1e9), st.floats(0.1, 1e9))
def test_moving_pays_where_its_bytes_take_no_longer_than_its_tokens(chunks, rate, speed):
    found = estimate(seen(chunks, speed), rate)
    assert found.moving_seconds == pytest.approx(chunks * 1000 / rate)
    assert found.computing_seconds == pytest.approx(chunks * 10 / speed)
    assert found.pays == (found.moving_seconds <= found.computing_seconds)


@given(st.integers(1, 10**6), st.floats(1.0, 1e9), st.floats(0.1, 1e9), st.floats(1.0, 100.0))
def test_a_faster_way_never_makes_it_pay_less(chunks, rate, speed, faster):
    if estimate(seen(chunks, speed), rate).pays:
        assert estimate(seen(chunks, speed), rate * faster).pays
        assert estimate(seen(chunks, speed / faster), rate).pays


def test_the_words_have_both_times():
    assert estimate(seen(384, 300.0), 100_000.0).words() == (
        "384 chunks (375Ki, 3840 tokens) are in no shared storage: to move them takes 3.84 s, to compute them again, "
        "12.8 s: moving pays"
    )
    assert estimate(seen(384, 30000.0), 100_000.0).words().endswith("0.128 s: moving does not pay")
    assert "is not known: moving pays" in estimate(seen(384, None), 1.0).words()
    assert estimate(seen(0, None), 1.0).words().endswith("nothing is to be handed down")


def test_the_table_has_what_was_found_of_what_there_was():
    report = seen(1, None, pod="a", work="hand-down", state="Done", found=19, moved=4, moved_bytes=4000, seconds=0.5)
    lines = list(table([report]))
    assert lines == [
        "ENGINE  WORK        PROMPTS  MOVED  BYTES  SECONDS  FOUND  LEFT  HIT%",
        "a       hands down  0/0          4  3.9Ki     0.50     19     1  95.0",
    ]


@pytest.fixture
def engines() -> Iterator[tuple[MovingEngine, MovingEngine]]:
    pair = MovingEngine("first", PROMPTS), MovingEngine("second", ())
    for each in pair:
        each.start()
    yield pair
    for each in pair:
        each.stop()


def move(*engines: MovingEngine, seconds: float = 60.0) -> Move:
    """A move as the command makes it, for engines on loopback, which are queried from here."""
    source, target = (
        engines_of(
            Api(Path("/nowhere")),
            Pool("shop", "demo", 1, None, {"adminPort": each.port}, {}, {}),
            [Pod("shop", each.name, True, "", {}, "127.0.0.1")],
        )[0]
        for each in engines
    )
    return Move("acme", source, target, 1000.0, time.monotonic() + seconds, [].append)


def test_one_hands_down_and_the_other_brings_up_what_the_first_names(engines):
    first, second = engines
    moving = move(*engines)
    assert moving.look().chunks == 5
    assert moving.hand_down().moved == 5
    assert moving.warm_up().prompts_total == 2
    assert [each.order for each in first.orders] == ["look", "hand-down"]
    assert [(each.order, each.prompts) for each in second.orders] == [("warm-up", PROMPTS)]
    assert {each.bytes_per_second for each in (*first.orders, *second.orders)} == {1000.0}


def test_it_is_not_waited_for_without_end(engines):
    engines[0].never_ends = True
    with pytest.raises(MigrateError, match="not complete in time, and stopped; run it again to go on: first looks at"):
        move(*engines, seconds=0.0).look()


def test_stopping_stops_both(engines):
    moving = move(*engines)
    moving.stop()
    assert [[each.order for each in engine.orders] for engine in engines] == [["stop"], ["stop"]]
    engines[0].stop()
    moving.stop()
    assert len(engines[1].orders) == 2, "the other one, too, where one is gone"


def test_what_fails_is_reported_in_the_engines_words(engines):
    engines[0].problem = "the KV-cache manager does not answer"
    with pytest.raises(MigrateError, match="first: the KV-cache manager does not answer"):
        move(*engines).look()


def test_an_engine_that_can_not_is_named(engines):
    engines[0].take_ability()
    with pytest.raises(MigrateError, match="engine first can't move zones: it has no shared storages"):
        move(*engines).look()
