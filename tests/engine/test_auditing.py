"""From the zones to the journal's files: nothing is lost unless a disk is stuck permanently, and the bill adds up."""

import os
import threading

import pytest

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.zone_terms import Idle
from tenantzone_runtime.housekeeping import auditing
from tenantzone_runtime.housekeeping.auditing import Auditing
from tenantzone_runtime.journal.bill import Period, make_bill
from tenantzone_runtime.journal.writer import JournalWriter
from tests.journal.journals import ENGINE, eventually, kinds, put, records

MANY = 300


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def driver(config, monkeypatch):
    monkeypatch.setattr(auditing, "COLLECT_SECONDS", 0.0)
    return Driver(make_scheduler(config, 100))


def zones(count=MANY):
    return [ZoneConfig(name=f"tenant-{number}", tenant=f"tenant-{number}", generation=1) for number in range(count)]


def audit_until(audit, condition):
    def turned():
        audit.turn()
        return condition()

    eventually(turned)


def test_what_is_more_than_waits_to_be_written_is_written_too(driver, tmp_path):
    journal = JournalWriter(tmp_path, engine=ENGINE, queue_records=10)
    audit = Auditing(driver.served, journal)
    driver.declare(*zones())
    audit_until(audit, lambda: len(records(tmp_path)) == MANY + 2)
    assert kinds(tmp_path) == ["started", *["lifecycle"] * MANY, "config_applied"]
    audit.close()


def test_an_engine_that_stops_writes_what_is_more_than_waits_to_be_written(driver, tmp_path):
    journal = JournalWriter(tmp_path, engine=ENGINE, queue_records=10)
    audit = Auditing(driver.served, journal)
    driver.declare(*zones())
    audit.turn()
    driver.ask("tenant-7", prompt(5))
    audit.close()
    assert len(kinds(tmp_path)) == 2 + MANY + 3
    assert kinds(tmp_path)[-3:] == ["lifecycle", "balance", "usage"]


def test_while_a_disk_is_stuck_turns_end_and_what_happens_is_added_up(driver, tmp_path):
    (tmp_path / "stuck").mkdir()
    pipe = tmp_path / "stuck" / "journal-00000001.jsonl"
    os.mkfifo(pipe)
    journal = JournalWriter(tmp_path / "stuck", engine=ENGINE, queue_records=10)
    audit = Auditing(driver.served, journal)
    driver.declare(*zones(20))
    for _ in range(50):
        driver.ask("tenant-7", prompt(1))
        audit.turn()
    arrived: list[bytes] = []
    # Opening the other end lets the writer continue.
    reader = threading.Thread(target=lambda: arrived.append(pipe.read_bytes()))
    reader.start()
    audit_until(audit, lambda: journal.head is not None and journal.head.seq >= 23)
    audit.close()
    reader.join()
    written = records(put(tmp_path / "read", arrived))
    assert "lost" not in {record["kind"] for record in written}
    assert [record["granted"] for record in written if record["kind"] == "balance"] == [2, 98]
    assert [record["promptTokens"] for record in written if record["kind"] == "usage"] == [850]


def test_without_a_journal_nothing_piles_up(driver):
    audit = Auditing(driver.served, None)
    driver.declare(*zones(20))
    audit.config_refused(2, "no")
    audit.turn()
    assert driver.scheduler.tenancy.ledger.trail.collect() == []
    audit.close()


def test_a_refused_config_is_reported_in_its_order(driver, tmp_path):
    audit = Auditing(driver.served, JournalWriter(tmp_path, engine=ENGINE))
    driver.declare()
    audit.config_refused(2, "not valid JSON")
    driver.declare()
    audit.close()
    assert kinds(tmp_path) == ["started", "config_applied", "config_refused", "config_applied"]
    assert records(tmp_path)[2]["error"] == "not valid JSON"


def test_usage_is_reported_once_a_minute_and_the_bill_adds_up_to_what_the_zones_counted(driver, tmp_path, monkeypatch):
    monkeypatch.setattr(auditing, "USAGE_SECONDS", 0.0)
    audit = Auditing(driver.served, JournalWriter(tmp_path, engine=ENGINE))
    lender = ZoneConfig(name="lender", tenant="lender", generation=1, reserved=60, idle=Idle(after_seconds=0.0))
    driver.declare(lender, *zones(3))
    ever = list(driver.scheduler.tenancy.ledger.zones.values())
    driver.scheduler.let_time_pass()
    for turn in range(30):
        driver.ask(f"tenant-{turn % 2}", prompt(70))
        driver.scheduler.let_time_pass()
        audit.turn()
    driver.declare()
    driver.scheduler.let_time_pass()
    audit.close()
    bill = make_bill([tmp_path], Period())
    assert set(bill.zones) == {"tenant-0", "tenant-1"}, "a tenant that used nothing has no bill"
    for zone in ever:
        used = bill.zones.get(zone.spec.tenant)
        assert (used.prompt_tokens if used else 0) == zone.counters.prompt_tokens
        assert (used.block_seconds if used else 0.0) == pytest.approx(zone.counters.block_seconds, abs=0.001)
        stood_on = sum(used.block_seconds for (_, borrower), used in bill.loans.items() if borrower == zone.spec.tenant)
        assert stood_on == pytest.approx(zone.counters.borrowed_block_seconds, abs=0.02)
    assert sum(used.block_seconds for used in bill.loans.values()) > 0
