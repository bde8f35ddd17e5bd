"""Half a minute of ``make soak-attacks``, which takes half an hour; a changed reservation is noticed."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.operator.attacks.__main__ import show
from bench.operator.attacks.attacks import Attack, forged
from bench.operator.attacks.held import Leaderless, Reservations
from bench.operator.attacks.mounted import held_of
from bench.operator.attacks.run import ATTACKED, UNDISTURBED, Attacked, Findings, judge, soak
from bench.operator.attacks.running import Attackers
from bench.operator.attacks.site import Check
from bench.operator.soak.changes import Taken
from bench.operator.soak.scene import Size
from tenantzone_operator.kube.rest import RestError
from tests.operator.objects import snapshot, zone
from tests.waiting import await_that


@pytest.mark.controlplane
def test_no_reservation_changes_while_all_attacks_come_at_once(capsys: pytest.CaptureFixture[str]):
    size = Size(minutes=0.4, zones=40, pools=4, namespaces=2, liars=1, rate=3.0, seed=1)
    found = soak(size, Attacked(frequency=6.0, patience=10.0, tolerance=60.0, rounds=1))

    assert (found.changed, found.wrong) == ([], [])
    for matter, taken in found.taken.items():
        assert taken.seconds, matter
        assert not taken.lost, matter
    assert sum(tally.carried_out > 0 for tally in found.tallies.values()) > 10
    assert any(tally.seconds for tally in found.tallies.values())
    assert found.comparisons > 40
    assert found.operator_restarts
    assert found.engine_restarts
    show(found, 60.0)
    assert "\n0 reservations changed\n" in capsys.readouterr().out


@pytest.mark.controlplane
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_started_ends_with_the_command(tmp_path: Path, number: signal.Signals):
    """Upon SIGTERM its folder goes, too."""
    size = ("--zones", "4", "--pools", "2", "--namespaces", "1", "--liars", "0")
    log = tmp_path / "errors"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.operator.attacks", *size],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)},
            stdout=errors,
            stderr=errors,
        )
    await_that(lambda: "undisturbed:" in log.read_text() or process.poll() is not None, "the first changes")
    programs = ("etcd", "kube-apiserver", "tenantzone_manager", "tenantzone_operator")
    assert all(any(program in line for line in running_in(tmp_path)) for program in programs), log.read_text()
    process.send_signal(number)
    process.wait()
    await_that(lambda: not running_in(tmp_path), "the end of everything")
    if number == signal.SIGTERM:
        assert process.returncode == 143
        assert not list(tmp_path.glob("tenantzone-bench-*"))


def running_in(folder: Path) -> list[str]:
    """Command lines of processes that name the folder."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(each.read_text())
    return [line for line in found if str(folder) in line]


class Reachable:
    """The part of a site that is used where attacks fail."""

    def __init__(self) -> None:
        self.chance = random.Random(1)


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (RestError(409, "conflict"), (1, 0, [])),
        (RestError(500, "trouble"), (1, 0, ["forge: 500 trouble"])),
        (TimeoutError(), (0, 1, [])),
        (ConnectionResetError(), (0, 1, [])),
    ],
    ids=["refused", "trouble", "late", "reset"],
)
async def test_an_attack_that_fails_is_counted_and_others_follow(error: Exception, counted: tuple[int, int, list[str]]):
    async def fail(_: object) -> Check:
        raise error

    attackers = Attackers(Reachable(), {"forge": Attack(0.001, "undone", fail)}, 1.0, 1.0)  # type: ignore[arg-type]
    (run,) = attackers.runs()
    tally = attackers.tallies["forge"]
    running = asyncio.create_task(run)
    async with asyncio.timeout(60):
        while tally.carried_out < 3:  # noqa: ASYNC110 (the attackers have no event for an attack)
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    refused, unanswered, said = counted
    times = tally.refused + tally.unanswered
    assert times >= 2
    assert (tally.refused, tally.unanswered) == (refused * times, unanswered * times)
    assert tally.late == said * times


@pytest.fixture
def reservations() -> Reservations:
    """Two engines that hold what two zones were granted, 5 and 10%."""
    made = Reservations()
    made.grant("acme", "demo", 5)
    made.grant("burst", "demo", "10%")
    for engine in ("left", "right"):
        made.apply(engine, "demo", {"acme": 5, "burst": "10%"}, 0.0)
    assert not list(made.breaches(1.0))
    return made


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ({"acme": 0, "burst": "10%"}, ["left held 0 for acme for 3.0 s, granted: 5"]),
        ({"acme": 6, "burst": "10%"}, ["left held 6 for acme for 3.0 s, granted: 5"]),
        ({"acme": 5}, ["left held None for burst for 3.0 s, granted: 10%"]),
        ({"acme": 5, "burst": "10%", "greedy": 80}, ["left held 80 for greedy for 3.0 s, granted: nothing"]),
        ({"acme": 5, "burst": 10}, ["left held 10 for burst for 3.0 s, granted: 10%"]),
    ],
)
def test_a_reservation_that_changes_is_noticed(reservations: Reservations, held: dict[str, int | str], said: list[str]):
    reservations.apply("left", "demo", held, 2.0)
    assert list(map(str, reservations.breaches(5.0))) == said
    assert not reservations.is_granted("demo", held)

    reservations.apply("left", "demo", {"acme": 5, "burst": "10%"}, 4.0)
    assert [each.until for each in reservations.breaches(5.0)] == [4.0]


def test_while_an_owner_changes_a_zone_both_values_may_be_held(reservations: Reservations):
    reservations.begin_change("acme", 7)
    reservations.apply("left", "demo", {"acme": 7, "burst": "10%"}, 1.0)
    assert not list(reservations.breaches(2.0))

    reservations.end_change("acme", 7, 3.0)
    assert list(map(str, reservations.breaches(4.0))) == ["right held 5 for acme for 1.0 s, granted: 7"]
    reservations.apply("right", "demo", {"acme": 7, "burst": "10%"}, 4.0)
    reservations.apply("left", "demo", {"acme": 5, "burst": "10%"}, 5.0)
    assert [(each.engine, each.held) for each in reservations.breaches(6.0)] == [("right", 5), ("left", 5)]


def test_an_engine_that_was_stopped_holds_nothing(reservations: Reservations):
    reservations.apply("left", "demo", {}, 1.0)
    reservations.stop("left", "demo", 2.0)
    assert {(each.zone, each.until) for each in reservations.breaches(9.0)} == {("acme", 2.0), ("burst", 2.0)}


def test_a_forged_config_takes_every_reservation_away():
    config = snapshot(3, zone("acme", reserved=5), zone("burst", reserved="10%"))
    false = forged(config, 4)
    assert held_of(false) == {"acme": 0, "burst": 0, "greedy": "90%"}
    assert (false.generation, false.hash != config.hash) == (4, True)


def test_times_without_a_leader_are_counted():
    times = Leaderless()
    for is_led, now in ((True, 0.0), (False, 10.0), (False, 11.0), (True, 12.0), (False, 20.0)):
        times.look(is_led, now)
    assert times.times == [(10.0, 12.0)]
    assert [times.seconds(*span) for span in ((0.0, 10.0), (0.0, 11.0), (11.0, 30.0), (13.0, 19.0))] == [0, 1, 11, 0]


def test_a_breach_counts_as_a_change_once_an_operator_led_for_longer_than_is_tolerated(reservations: Reservations):
    reservations.apply("left", "demo", {"burst": "10%"}, 100.0)
    (breach,) = reservations.breaches(110.0)
    for leaderless, changed in ((0.0, [str(breach)]), (3.0, [str(breach)]), (5.0, [])):
        found = Findings()
        judge(found, [breach], lambda *_, seconds=leaderless: seconds, tolerance=5.0)
        assert (found.changed, found.longest_seconds) == (changed, 10.0 - leaderless)


@pytest.mark.parametrize(
    ("slow", "changed", "wrong", "is_well"),
    [(2.0, [], [], True), (2.1, [], [], False), (2.0, ["a zone's"], [], False), (2.0, [], ["a status"], False)],
    ids=["all well", "slow", "a reservation changed", "a false status"],
)
def test_what_is_not_as_it_should_be_fails(
    slow: float, changed: list[str], wrong: list[str], is_well: bool, capsys: pytest.CaptureFixture[str]
):
    taken = {UNDISTURBED: Taken(seconds=[1.0]), ATTACKED: Taken(seconds=[slow])}
    assert show(Findings(taken=taken, changed=changed, wrong=wrong), 6.0) is is_well
    out = capsys.readouterr().out
    assert all(each in out for each in changed + wrong)
