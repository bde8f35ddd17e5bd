"""The threads that wait for the disk: tenants take turns, and no shutdown waits for the threads."""

import threading
from functools import partial

from tenantzone_runtime.disk.workers import Results, Workers
from tests.waiting import await_that


def test_tenants_come_in_turn_and_each_tenants_work_in_order():
    workers, begun, go_on, order, done = Workers("test", 1), threading.Event(), threading.Event(), [], threading.Event()
    workers.submit("first", lambda: (begun.set(), go_on.wait(20)))
    assert begun.wait(20)
    for tenant in ("a", "a", "a", "b", "c", "c"):
        workers.submit(tenant, lambda tenant=tenant: order.append(tenant))
    workers.submit("z", lambda: None)
    for _ in range(3):
        workers.submit("z", lambda: None)
    workers.submit("z", done.set)
    go_on.set()
    assert done.wait(20)
    assert order == ["a", "b", "c", "a", "c", "a"]
    workers.stop()


def test_work_that_hangs_keeps_no_other_waiting_at_the_end():
    workers, begun, never = Workers("test", 1), threading.Event(), threading.Event()
    workers.submit("a", lambda: (begun.set(), never.wait(20)))
    workers.submit("a", lambda: order.append("late"))
    order = []
    assert begun.wait(20)
    workers.stop()
    never.set()
    assert not order, "what had not begun does not"


def test_an_unexpected_error_is_a_result_and_does_not_end_the_thread(caplog):
    workers, results, reported, done = Workers("test", 1), Results("disk", OSError), [], threading.Event()

    def fail(error):
        raise error

    errors = [ValueError("unexpected"), OSError("expected"), None]
    for error in errors:
        work = done.set if error is None else partial(fail, error)
        results.run(workers, "acme", work, reported.append)
    assert done.wait(20)
    # The results are reported in the order of the work, and the last one may still be under way.
    await_that(lambda: results.take_note() or len(reported) == 3, "all work is reported")
    workers.stop()
    assert reported == errors
    assert [record.message for record in caplog.records] == ["Unexpected error in a thread of the disk tier"]
