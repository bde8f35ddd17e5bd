"""Measures the time of a change from ``kubectl patch`` to the engine's report, and to the resource's status."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hack.demo.console import say, wait_until
from hack.demo.stack import Stack
from hack.demo.workspace import watching
from tenantzone_contract.reports.report import REPORT_PATH, parse_report

PATCHES = 20
ZONE = "burst"

_POLL_SECONDS = 0.02
_TIMEOUT_SECONDS = 30.0
_PROGRAMMED = '.status.conditions[?(@.type=="Programmed")]'


@dataclass(frozen=True, slots=True)
class Patch:
    """The times of one patch, in seconds since just before ``kubectl patch`` was started."""

    acknowledged: float
    """Time until the engine's report has the new generation as enforced."""
    programmed: float
    """Time until the zone's Programmed condition is True for the new generation."""


@dataclass(slots=True)
class Arrivals:
    """The time at which each generation was first seen."""

    times: dict[int, float] = field(default_factory=dict)

    def saw(self, generation: int) -> None:
        self.times.setdefault(generation, time.perf_counter())


def measure_patches(stack: Stack) -> list[Patch]:
    """Apply patches one after the other, each after the previous patch has arrived everywhere.

    Raises:
        TimeoutError: a patch did not arrive.
    """
    with _acknowledgements(stack) as acknowledged, _programmed(stack) as programmed:
        return [_measure(stack, number, acknowledged, programmed) for number in range(PATCHES)]


def _measure(stack: Stack, number: int, acknowledged: Arrivals, programmed: Arrivals) -> Patch:
    # Each patch has a different value, and the last patch leaves burst with a reservation.
    change = {"spec": {"reserved": f"{number + 1}%"}}
    began = time.perf_counter()
    generation = int(
        stack.cluster.kubectl(
            "patch", "tenantzone", ZONE, "--type=merge", f"--patch={json.dumps(change)}",
            "--output=jsonpath={.metadata.generation}",
        ).stdout
    )  # fmt: skip
    wait_until(
        lambda: generation in acknowledged.times and generation in programmed.times,
        lambda: f"patch {number + 1} of {PATCHES}",
        timeout=_TIMEOUT_SECONDS,
        poll=_POLL_SECONDS,
    )
    patch = Patch(acknowledged.times[generation] - began, programmed.times[generation] - began)
    say(
        f"  reserved {change['spec']['reserved']:>3}, generation {generation:2}: "
        f"acknowledged after {patch.acknowledged:.2f} s, Programmed after {patch.programmed:.2f} s"
    )
    return patch


@contextmanager
def _acknowledgements(stack: Stack) -> Iterator[Arrivals]:
    """Poll the engine's report in a thread until the block ends."""
    arrivals = Arrivals()
    stop = threading.Event()

    def poll() -> None:
        with stack.admin() as engine:
            while not stop.wait(_POLL_SECONDS):
                report = parse_report(engine.get(REPORT_PATH).content)
                for zone in report.zones:
                    if zone.name == ZONE:
                        arrivals.saw(zone.generation)

    poller = threading.Thread(target=poll, name="report-poller")
    poller.start()
    try:
        yield arrivals
    finally:
        stop.set()
        poller.join()


@contextmanager
def _programmed(stack: Stack) -> Iterator[Arrivals]:
    """Read the output of ``kubectl get --watch`` in a thread until the block ends."""
    arrivals = Arrivals()
    columns = f"jsonpath={{{_PROGRAMMED}.status}} {{{_PROGRAMMED}.observedGeneration}}{{'\\n'}}"
    with watching(stack.cluster, "get", "tenantzone", ZONE, "--watch", f"--output={columns}") as lines:

        def read() -> None:
            for line in lines:
                status, _, generation = line.strip().partition(" ")
                if status == "True" and generation:
                    arrivals.saw(int(generation))

        reader = threading.Thread(target=read, name="status-watcher", daemon=True)
        reader.start()
        yield arrivals
