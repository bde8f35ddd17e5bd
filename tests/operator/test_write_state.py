"""When the status of one object is written, and whether a user waits for it."""

from typing import Any

from tenantzone_operator.kube.resources import Zone, read_zone
from tenantzone_operator.writing.refusals import RETRY_SECONDS
from tenantzone_operator.writing.write_state import AWAITED_SECONDS, REPAIR_SECONDS, WriteState
from tests.operator.objects import NOW, body

OURS = {"message": "enforced"}
NEWER = {"message": "pending"}
MERGED = OURS | {"theirs": True}


def write(state: WriteState, status: Any, now: float) -> bool:
    """Writes a status if it may be written now, and returns whether it was."""
    may_write = state.may_write(status, now)
    if may_write:
        state.begin(status, now)
        state.note(status, status)
    return may_write


def test_a_new_status_is_written_at_once_however_often():
    state = WriteState()
    assert all(write(state, status, 0.0) for status in (OURS, NEWER) * 10)


def test_a_status_that_others_change_is_repaired_at_once_and_then_rarely():
    state = WriteState()
    write(state, OURS, 0.0)
    tenths = range(round(10 * 3.5 * REPAIR_SECONDS))
    assert [tenth / 10 for tenth in tenths if write(state, OURS, tenth / 10)] == [
        0.0,
        REPAIR_SECONDS,
        2 * REPAIR_SECONDS,
        3 * REPAIR_SECONDS,
    ]
    assert write(state, NEWER, 3.5 * REPAIR_SECONDS), "a new status does not wait for the next repair"


def test_a_repair_that_fails_counts():
    state = WriteState()
    write(state, OURS, 0.0)
    state.begin(OURS, 1.0)
    assert not state.may_write(OURS, 2.0)


def test_fields_that_others_add_need_no_write():
    state = WriteState()
    assert state.differs(MERGED, OURS)
    state.note(OURS, MERGED)
    assert not state.differs(MERGED, OURS)
    assert state.own_part(MERGED) == OURS
    assert state.differs(MERGED | {"theirs": False}, OURS), "others have changed more since"
    state.note(OURS, OURS)
    assert state.differs(MERGED, OURS)


def test_a_refused_status_is_retried_slowly_and_another_one_at_once():
    state = WriteState()
    assert [state.refuse(status, 0.0) for status in (OURS, OURS, NEWER, NEWER)] == [True, False, True, False]
    assert not state.may_write(NEWER, RETRY_SECONDS - 1)
    assert state.may_write(OURS, 0.0)
    assert state.may_write(NEWER, RETRY_SECONDS)
    state.note(OURS, OURS)
    assert state.refusal is None


def status(generation: int, programmed: str) -> dict[str, Any]:
    condition = {"type": "Programmed", "status": programmed, "reason": "So", "message": ""}
    times = {"lastTransitionTime": NOW, "observedGeneration": generation}
    return {"observedGeneration": generation, "conditions": [condition | times], "message": ""}


def zone(generation: int, programmed: str, seen: int = 1) -> Zone:
    return read_zone(body("acme", generation=generation, spec={"pool": "demo"}, status=status(seen, programmed)))


def is_awaited(state: WriteState, zone: Zone, now: float) -> bool:
    state.see(zone, now)
    return state.is_awaited(zone, now)


def test_a_change_is_awaited_until_the_engines_have_it():
    state = WriteState()
    assert not is_awaited(state, zone(1, "True"), 0.0)

    changed = zone(2, "True")
    assert is_awaited(state, changed, 1.0)
    state.note_zone(changed, status(2, "Unknown"), 2.0)
    assert is_awaited(state, changed, 3.0)
    state.note_zone(changed, status(2, "True"), 4.0)
    assert not is_awaited(state, changed, 5.0)


def test_no_change_is_awaited_for_ever():
    state, reported = WriteState(), zone(2, "Unknown", seen=2)
    assert is_awaited(state, reported, 0.0)
    assert not is_awaited(state, reported, AWAITED_SECONDS + 1)


def test_a_change_without_a_written_status_is_awaited_however_long_it_takes():
    state, unwritten = WriteState(), zone(2, "True", seen=1)
    assert is_awaited(state, unwritten, 0.0)
    assert is_awaited(state, unwritten, 10 * AWAITED_SECONDS)


def test_only_writes_that_no_user_waited_for_put_a_zone_behind_others():
    state, changed = WriteState(), zone(2, "Unknown", seen=1)
    state.note_zone(changed, status(2, "Unknown"), 1.0)
    assert state.unhurried_at == 0.0
    written = zone(2, "True", seen=2)
    state.note_zone(written, status(2, "Unknown"), 2.0)
    assert state.unhurried_at == 2.0
