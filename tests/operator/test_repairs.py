"""How often a status is repaired that another party changes."""

from tenantzone_operator.kube.store import View
from tenantzone_operator.writing.repairs import REPAIR_SECONDS, Repairs
from tests.operator.objects import pool, zone

OURS = {"message": "enforced"}
NEWER = {"message": "pending"}


def test_what_is_new_is_written_at_once_however_often():
    repairs = Repairs()
    for status in (OURS, NEWER) * 10:
        assert repairs.may_write("uid", status, 0.0)
        repairs.note("uid", status)


def test_what_was_written_and_is_other_now_is_put_right_at_once_and_then_in_measure():
    repairs = Repairs()
    repairs.note("uid", OURS)
    written = []
    for tenth in range(round(10 * 3.5 * REPAIR_SECONDS)):
        if repairs.may_write("uid", OURS, tenth / 10):
            written.append(tenth / 10)
            repairs.note("uid", OURS)
    assert written == [0.0, REPAIR_SECONDS, 2 * REPAIR_SECONDS, 3 * REPAIR_SECONDS]
    assert repairs.may_write("uid", NEWER, 3.5 * REPAIR_SECONDS), "what is new does not wait for it"


def test_one_object_waits_for_no_other():
    repairs = Repairs()
    for uid in ("one", "other"):
        repairs.note(uid, OURS)
        assert repairs.may_write(uid, OURS, 0.0)
        assert not repairs.may_write(uid, OURS, 1.0)


def test_objects_that_are_gone_are_forgotten():
    repairs = Repairs()
    here = View(pool(), [zone("acme")], [zone("leaving")], [])
    for uid in ("uid-acme", "uid-leaving", "uid-demo", *(f"gone-{number}" for number in range(100))):
        repairs.note(uid, OURS)
        repairs.may_write(uid, OURS, 0.0)
    repairs.look(here)
    assert [repairs.may_write(uid, OURS, 1.0) for uid in ("uid-acme", "uid-leaving", "uid-demo")] == [False] * 3
    assert repairs.may_write("gone-1", OURS, 1.0)
