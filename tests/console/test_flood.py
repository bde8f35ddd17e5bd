"""All parts real: an engine, an API server, two operators, a browser at the one that does not lead; and a flood."""

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pytest
from playwright.sync_api import Browser, expect

from hack.controlplane import Cluster, ControlPlane
from hack.ports import free_ports
from tests.console.browsing import cell_colours, opened
from tests.console.colours import linear, variables
from tests.engine.real_engine import RealEngine
from tests.flooding import BLOCK_TOKENS, ask, text
from tests.kubelet import engine_pod, kubelet
from tests.operator.replicas import SHORT, replicas_of

pytestmark = [pytest.mark.engine, pytest.mark.controlplane]

NAMESPACE = "console"
POOL = "demo"
ENGINE = "engine-0"
LABELS = {"app": "vllm"}
PROTECTED_BLOCKS = 80
MORE_THAN_THE_POOL = re.compile("^[3-9][0-9]{2}$|^[0-9,]+,[0-9]{3}$")
"""Evicted blocks in the page's format: 300 or more."""
FLOOD_MILLISECONDS = 300_000
"""Milliseconds for a flood to get that far on a busy machine."""


@dataclass(frozen=True)
class Stage:
    engine: RealEngine
    url: str
    """The URL of the page, on the standby operator."""


@pytest.fixture(scope="module")
def stage(
    engine: RealEngine, control_plane: Cluster, operator_kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """Two zones in a pool with the real engine."""
    assert isinstance(control_plane, ControlPlane), "several operators need users of their own"
    folder = tmp_path_factory.mktemp("console")
    engine.add_keys("gold", "noisy")
    control_plane.create_namespace(NAMESPACE)
    control_plane.kubectl("apply", "--namespace", NAMESPACE, "--filename=-", stdin=json.dumps(_objects()))
    leader, standby = free_ports(2)
    with (
        replicas_of(control_plane, folder) as replicas,
        kubelet(control_plane, NAMESPACE, ENGINE, engine, folder / "kubelet.log"),
    ):
        replicas.add("left", *SHORT, "--console-port", str(leader)).await_leading()
        replicas.add("right", *SHORT, "--console-port", str(standby)).await_running()
        wait = ("wait", "--for=condition=Ready", "tenantzones", "--all", "--timeout=120s")
        control_plane.kubectl("--namespace", NAMESPACE, *wait)
        yield Stage(engine, f"http://localhost:{standby}/#/{NAMESPACE}/{POOL}")
    control_plane.delete_namespace(NAMESPACE)


def _objects() -> dict[str, object]:
    def ours(kind: str, name: str, **spec: object) -> dict[str, object]:
        return {"apiVersion": "tenantzone.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}

    items = [
        ours("ZonePool", POOL, selector={"matchLabels": LABELS}),
        ours("TenantZone", "gold", pool=POOL, reserved="40%"),
        ours("TenantZone", "noisy", pool=POOL, limit="60%"),
        engine_pod(ENGINE, LABELS, POOL),
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


@contextmanager
def flooding(engine: RealEngine, tenant: str) -> Iterator[None]:
    """For as long as the block runs, the tenant sends several different requests at once."""
    stop, numbers = Event(), itertools.count()

    def flood() -> None:
        while not stop.is_set():
            ask(engine, tenant, text(f"Flood {next(numbers)}", 30))

    with ThreadPoolExecutor(4) as askers:
        asking = [askers.submit(flood) for _ in range(4)]
        try:
            yield
        finally:
            stop.set()
    for one in asking:
        one.result()


def test_the_page_shows_the_flood_and_the_zone_that_is_protected_from_it(browser: Browser, stage: Stage):
    engine, document = stage.engine, text("The handbook", PROTECTED_BLOCKS)
    ask(engine, "gold", document)
    with opened(browser, stage.url) as page:
        expect(page.get_by_text("which stands by")).to_be_visible()
        expect(page.get_by_role("heading", name=f"Pool {NAMESPACE}/{POOL}")).to_be_visible()
        protected = page.get_by_label("gold: 0 in use, 80 cached")
        expect(protected).to_be_visible()
        expect(page.get_by_role("button", name="gold 80 blocks")).to_be_visible()

        with flooding(engine, "noisy"):
            expect(page.get_by_label(re.compile("noisy: [1-9][0-9]* in use"))).to_be_visible()
            evicted = page.locator("#zone-rows tr", has_text="noisy").locator("td.number").nth(7)
            expect(evicted).to_have_text(MORE_THAN_THE_POOL, timeout=FLOOD_MILLISECONDS)
            expect(protected).to_be_visible()

        # One more than it keeps, if a sample was taken while its request ran: the block that was not yet full.
        expect(page.get_by_role("img", name=re.compile("gold held between [0-9]+ and 8[01] of blocks"))).to_be_visible()
        expect(page.get_by_label(re.compile("noisy: 0 in use, 1[0-9]{2} cached"))).to_be_visible()
        colours = variables("light")
        (corners,) = cell_colours(page, 0.0)
        drawn = Counter(linear(colour) for colour in corners)
        assert drawn[colours["zone-1"]] == PROTECTED_BLOCKS
        assert drawn[colours["zone-2"]] > PROTECTED_BLOCKS
    assert ask(engine, "gold", document) == PROTECTED_BLOCKS * BLOCK_TOKENS
