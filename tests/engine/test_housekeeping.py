"""Background work: reloads are counted, and each scrape gets its own snapshot."""

import json
import logging
import threading
import time

import pytest

from hack.harness.scheduler import make_scheduler, vllm_config
from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config
from tenantzone_runtime.engine.core.served_scheduler import ServedScheduler
from tenantzone_runtime.housekeeping import thread
from tenantzone_runtime.housekeeping.thread import Housekeeping
from tenantzone_runtime.settings import read_settings
from tenantzone_runtime.zones.config import configure

DEADLINE_SECONDS = 60


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def house(config, tmp_path):
    settings = read_settings({"TENANTZONE_CONFIG_DIR": str(tmp_path), "POD_NAME": "engine-0"})
    house = Housekeeping(ServedScheduler(make_scheduler(config, 100)), settings)
    yield house
    house.stop()


def write(folder, generation, *tenants, text=None):
    zones = tuple(ZoneConfig(name=tenant, tenant=tenant, generation=1) for tenant in tenants)
    pool = PoolConfig(namespace="team", name="shared")
    (folder / "new").write_text(dump_config(make_config(generation, pool, zones)) if text is None else text)
    (folder / "new").rename(folder / "config.json")


def scrape_at_once(house, monkeypatch):
    """Scrapes at once: without a thread there is nothing to wait for."""
    monkeypatch.setattr(thread, "SCRAPE_SECONDS", 0.0)
    house.figures()
    house.turn()
    return house.figures()


def test_each_config_file_counts_as_applied_or_rejected(house, tmp_path, monkeypatch):
    assert scrape_at_once(house, monkeypatch).reloads == {"applied": 0, "rejected": 0}
    write(tmp_path, 1, "acme")
    house.turn()
    write(tmp_path, 2, text="{")
    house.turn()
    write(tmp_path, 3, text="[")
    house.turn()
    write(tmp_path, 4, "acme", "burst")
    figures = scrape_at_once(house, monkeypatch)
    assert figures.reloads == {"applied": 2, "rejected": 2}
    assert (figures.config.applied_generation, figures.pool, figures.pod) == (4, "shared", "engine-0")
    assert [zone.name for zone in figures.zones] == ["acme", "burst"]


def test_a_config_that_fails_to_be_applied_is_in_the_report_the_figures_and_the_journal(config, tmp_path, monkeypatch):
    folder, journal = tmp_path / "config", tmp_path / "journal"
    folder.mkdir()
    settings = {"TENANTZONE_CONFIG_DIR": str(folder), "TENANTZONE_JOURNAL_DIR": str(journal)}
    house = Housekeeping(ServedScheduler(make_scheduler(config, 100)), read_settings(settings))

    def fail(*arguments):
        raise RuntimeError("bad luck")

    monkeypatch.setattr(configure, "add_zone", fail)
    write(folder, 1, "acme")
    house.turn()
    house.turn()
    rejected = house.report.config.rejected
    assert (rejected.generation, "bad luck" in rejected.error) == (1, True)
    figures = scrape_at_once(house, monkeypatch)
    assert (figures.config.rejected, figures.reloads) == (rejected, {"applied": 0, "rejected": 1})
    house.stop()
    kept = [json.loads(line) for path in sorted(journal.iterdir()) for line in path.read_text().splitlines()]
    assert [(each["generation"], each["error"]) for each in kept if each["kind"] == "config_refused"] == [
        (1, rejected.error)
    ]


def test_what_fails_in_turn_after_turn_is_logged_once(house, monkeypatch, caplog):
    caplog.set_level(logging.ERROR)
    monkeypatch.setattr(thread, "INTERVAL_SECONDS", 0.001)
    errors = ["first"] * 5 + ["second"] * 5 + [""] + ["second"] * 5
    is_over = threading.Event()

    def fail():
        if not errors:
            is_over.set()
        elif error := errors.pop(0):
            raise RuntimeError(error)

    monkeypatch.setattr(house, "turn", fail)
    house.start()
    assert is_over.wait(DEADLINE_SECONDS)
    assert [str(record.exc_info[1]) for record in caplog.records] == ["first", "second", "second"]


def test_each_scrape_gets_a_snapshot_of_its_own(house):
    house.start()
    first = house.figures()
    assert house.figures().taken_unix_time > first.taken_unix_time


def test_without_a_scrape_no_snapshot_is_taken(house, monkeypatch):
    monkeypatch.setattr(thread, "SCRAPE_SECONDS", 0.0)
    house.figures()
    house.turn()
    turned = time.time()
    house.turn()
    house.turn()
    assert house.figures().taken_unix_time <= turned


def test_a_scrape_of_an_engine_that_hangs_gets_the_snapshot_before(house, monkeypatch):
    monkeypatch.setattr(thread, "SCRAPE_SECONDS", 0.1)
    house.start()
    before = house.figures()
    scraped = []
    with house._engine.zone_lock:
        scraper = threading.Thread(target=lambda: scraped.append(house.figures()), daemon=True)
        scraper.start()
        scraper.join(DEADLINE_SECONDS)
        assert not scraper.is_alive(), "the scrape waits for the engine"
    assert scraped[0].taken_unix_time >= before.taken_unix_time
