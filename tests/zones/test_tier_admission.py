"""Which new chunks a zone may store in a tier: terms of admission, and which keys are remembered and for how long."""

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.reports.tier_effect import MIN_CHUNKS, WINDOW_SECONDS
from tenantzone_runtime.zones.tiers.tier_admission import SeenPrefixes
from tests.zones.core import declare
from tests.zones.test_tier import Chunks


def keys(name: str, count: int) -> list[bytes]:
    """The keys of a prompt's chunks; each key depends on all before it."""
    return [f"{name}{number}".encode() for number in range(count)]


def admitted(chunks: Chunks, prompt: list[bytes], tenant: str = "acme", **more: bool) -> int:
    return chunks.tier.admission.admitted(chunks.active(tenant), prompt, chunks.tier.ledger.now, **more)


def test_without_terms_all_is_admitted_and_nothing_remembered():
    chunks = Chunks(acme={}, burst={"admission": "SeenTwice"})
    assert admitted(chunks, keys("a", 5)) == 5
    assert not chunks.tier.admission.is_selective(chunks.zone("acme"))
    assert not chunks.tier.counts_of(chunks.zone("acme")).not_admitted


def test_what_is_seen_twice_is_admitted_up_to_where_it_goes_on_otherwise():
    chunks = Chunks(acme={"admission": "SeenTwice"})
    assert admitted(chunks, keys("a", 5)) == 0
    assert chunks.tier.counts_of(chunks.zone("acme")).not_admitted == 5
    assert admitted(chunks, keys("a", 3) + keys("b", 2)) == 3
    assert admitted(chunks, keys("a", 3) + keys("b", 4)) == 5


def test_what_comes_after_what_was_refused_is_not_admitted():
    chunks = Chunks(acme={"admission": "SeenTwice"})
    admitted(chunks, keys("a", 5))
    assert admitted(chunks, [b"new", *keys("a", 5)]) == 0
    assert admitted(chunks, keys("a", 5), is_cut=True) == 0


def test_no_zone_knows_what_another_has_seen():
    chunks = Chunks(acme={"admission": "SeenTwice"}, burst={"admission": "SeenTwice"})
    admitted(chunks, keys("a", 5))
    assert admitted(chunks, keys("a", 5), "burst") == 0


def test_a_purge_and_the_end_of_a_zone_forget_what_was_seen():
    chunks = Chunks(acme={"admission": "SeenTwice"})
    admitted(chunks, keys("a", 5))
    chunks.reload(declare("acme", purge="once"))
    assert admitted(chunks, keys("a", 5)) == 0
    chunks.tier.request_finished(chunks.zone("acme"), 0.0)
    chunks.tier.request_finished(chunks.zone("acme"), 0.0)
    chunks.reload()
    chunks.tier.check()
    chunks.reload(declare("acme"))
    assert admitted(chunks, keys("a", 5)) == 0


def test_a_new_config_changes_the_terms():
    chunks = Chunks(acme={"admission": "SeenTwice"})
    assert admitted(chunks, keys("a", 5)) == 0
    chunks.shares["acme"] = chunks.shares["acme"].model_copy(update={"admission": "Always"})
    chunks.reload(declare("acme"))
    assert admitted(chunks, keys("b", 5)) == 5


def spend(chunks: Chunks, count: int) -> None:
    """Stores `count` chunks that are never loaded, in one window."""
    for _ in range(count):
        chunks.keep(chunks.active("acme"), 1)
    chunks.tier.upkeep(chunks.tier.ledger.now + WINDOW_SECONDS)
    chunks.keep(chunks.active("acme"), 1)


def test_auto_admits_all_until_the_tier_is_ineffective_and_again_when_it_is_not():
    chunks = Chunks(acme={"admission": "Auto"})
    assert admitted(chunks, keys("a", 5)) == 5
    spend(chunks, MIN_CHUNKS)
    acme = chunks.zone("acme")
    assert chunks.tier.admission.is_ineffective(acme, chunks.tier.ledger.now)
    assert admitted(chunks, keys("b", 5)) == 0
    assert admitted(chunks, keys("a", 5)) == 5, "it has seen that before it had to know"
    admitted(chunks, keys("c", MIN_CHUNKS))
    kept = chunks.keep(acme, 10)
    chunks.tier.load(acme, kept)
    chunks.tier.upkeep(chunks.tier.ledger.now + WINDOW_SECONDS)
    chunks.tier.loaded(kept)
    chunks.keep(acme, 1)
    assert not chunks.tier.admission.is_ineffective(acme, chunks.tier.ledger.now)
    assert admitted(chunks, keys("d", 5)) == 5


def test_what_was_not_admitted_counts_as_offered():
    chunks = Chunks(acme={"admission": "SeenTwice"})
    spend(chunks, 1)
    admitted(chunks, keys("a", MIN_CHUNKS))
    spend(chunks, 1)
    window = chunks.tier.admission.window(chunks.zone("acme"), chunks.tier.ledger.now)
    assert window is not None
    assert window.offered >= MIN_CHUNKS


def test_where_a_part_is_of_no_use_all_is_admitted_or_nothing():
    chunks = Chunks(acme={"admission": "SeenTwice"}, burst={})
    admission, acme = chunks.tier.admission, chunks.active("acme")
    assert not admission.admits_any(acme, [b"long", b"short"], 0.0)
    assert admission.admits_any(acme, [b"longer", b"short"], 0.0)
    assert admission.admits_any(chunks.active("burst"), [b"any"], 0.0)
    admission.count_not_admitted(acme, 7)
    assert chunks.tier.counts_of(acme).not_admitted == 7


@given(st.lists(st.integers(0, 50)), st.integers(2, 20))
def test_the_newest_half_is_remembered_and_never_more_than_all(prefixes: list[int], capacity: int):
    seen = SeenPrefixes(capacity)
    for number in prefixes:
        seen.note([str(number).encode()])
        assert len(seen) <= capacity
        assert seen.has(str(number).encode())
    distinct = list(dict.fromkeys(reversed(prefixes)))
    for number in distinct[: capacity // 2]:
        assert seen.has(str(number).encode())
    assert not seen.has(b"another")
