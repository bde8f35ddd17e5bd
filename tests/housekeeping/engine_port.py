"""What any engine owes to housekeeping: one set of tests for each of them.

An engine's own test module makes it, in a subclass of :class:`EnginePort`. Configs arrive through a folder as kubelet
projects it, and results are read from the admin port and from the journal.
"""

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenantzone_contract.keys.salt import salt_key_id
from tenantzone_contract.reports.report import SaltKeyStatus
from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants
from tenantzone_contract.zone_config.zone_terms import Idle, SeatShare
from tenantzone_runtime.housekeeping import reloading, salting
from tenantzone_runtime.housekeeping.engine import ServedEngine
from tenantzone_runtime.journal.bill import Period, make_bill
from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.config import configure
from tenantzone_runtime.zones.model.zone import Zone, ZoneSpec
from tests.housekeeping.driven import CAPACITY, DEADLINE_SECONDS, DrivenEngine, run
from tests.housekeeping.house import House
from tests.journal.journals import eventually, kinds, records
from tests.runtime.folders import config, config_text, zone

AT_ONCE = Idle(after_seconds=0)
FIRST_KEY, SECOND_KEY = b"1" * 32, b"2" * 32


class EnginePort:
    """The tests. A subclass provides the engine."""

    @pytest.fixture
    def engine(self) -> DrivenEngine:
        raise NotImplementedError

    @pytest.fixture
    def house(self, engine: DrivenEngine, tmp_path: Path) -> Iterator[House]:
        """Housekeeping before any config. In the end each block has one place."""
        with House(engine.served, tmp_path) as house:
            yield house
        check_blocks(engine.served)

    # Configs

    def test_the_first_config_is_in_force_before_the_first_request(self, engine: DrivenEngine, tmp_path: Path) -> None:
        with House(engine.served, tmp_path, text=config_text(7, "acme")) as house:
            report = house.report()
        assert (report.config.applied_generation, [each.tenant for each in report.zones]) == (7, ["acme"])

    def test_a_config_takes_effect_and_is_reported(self, engine: DrivenEngine, house: House) -> None:
        house.enforce(zone("acme", reserved=40), zone("burst", limit="60%"))
        report = house.report()
        assert report.engine_version == engine.served.engine_version != ""
        assert (report.pod, report.capacity_blocks, report.free_blocks) == ("engine-0", CAPACITY, CAPACITY)
        assert report.block_size_tokens == engine.served.block_size_tokens > 0
        assert [(each.tenant, each.reserved, each.limit) for each in report.zones] == [
            ("acme", 40, CAPACITY),
            ("burst", 0, 60),
        ]
        about = {"vllm_version": report.engine_version, "pod": "engine-0", "pool": "main", "pool_namespace": "models"}
        assert house.metric("engine_info", **about) == 1
        assert house.metric("config_generation") == 1
        assert house.metric("engine_block_size_tokens") == report.block_size_tokens
        assert house.metric("zone_blocks_reserved", pool="main", zone="acme", tenant="acme") == 40

    def test_a_file_that_is_no_config_is_refused_and_the_one_before_stays(self, house: House) -> None:
        house.enforce(zone("acme", reserved=40))
        house.project("{")
        report = house.await_report(lambda report: report.config.rejected)
        assert (report.config.applied_generation, report.zones[0].reserved) == (1, 40)
        assert house.metric("config_rejected") == 1
        assert house.metric("config_reloads_total", result="rejected") == 1
        house.stop()
        assert "config_refused" in kinds(house.journal)

    def test_on_demand_a_config_counts_only_if_the_operator_signed_it(
        self, engine: DrivenEngine, tmp_path: Path
    ) -> None:
        token, thiefs = "a" * 43, "x" * 43
        with House(engine.served, tmp_path, text=config_text(1, "acme"), TENANTZONE_SIGNED_CONFIG="1") as house:
            report = house.report()
            assert (report.config.applied_generation, report.config.demands_signature) == (None, True)
            assert report.config.rejected is not None
            assert "has no admin token" in report.config.rejected.error
            house.project_signed(config_text(1, "acme"), token)
            house.give_tokens(token)
            house.await_report(lambda report: report.config.applied_generation == 1)
            house.project_signed(config_text(2, "thief"), thiefs)
            report = house.await_report(lambda report: report.config.rejected)
            assert report.config.rejected is not None
            assert report.config.rejected.untrusted
            assert "by none of the admin tokens" in report.config.rejected.error
            assert (report.config.applied_generation, [each.tenant for each in report.zones]) == (1, ["acme"])
            house.project_signed(config_text(3, "acme", "burst"), token)
            report = house.await_report(lambda report: report.config.applied_generation == 3)
            assert report.config.rejected is None

    def test_without_the_demand_it_says_so(self, house: House) -> None:
        house.enforce(zone("acme"))
        assert house.report().config.demands_signature is False

    def test_the_frontend_follows_what_is_in_force(self, house: House) -> None:
        def tenants() -> list[str] | None:
            config = house.of_frontend().config
            return None if config is None else [zone.tenant for zone in config.zones]

        assert (tenants(), house.of_frontend().rejection) == (None, None)
        house.enforce(zone("acme", reserved=40))
        eventually(lambda: tenants() == ["acme"])
        # Well-formed, so that only the engine can refuse it.
        house.declare(zone("burst", eviction_policy="Unheard"))
        house.await_report(lambda report: report.config.rejected)
        assert tenants() == ["acme"]
        house.remove_config()
        house.await_report(lambda report: report.config.rejected and "missing" in report.config.rejected.error)
        assert tenants() == ["acme"]
        house.enforce(zone("burst"))
        eventually(lambda: tenants() == ["burst"])

    def test_what_an_earlier_engine_sent_to_the_frontend_is_gone(self, engine: DrivenEngine, tmp_path: Path) -> None:
        (tmp_path / "state").mkdir()
        (tmp_path / "state" / "config.json").write_text(config_text(7, "acme"))
        with House(engine.served, tmp_path) as house:
            assert house.of_frontend().config is None

    def test_a_frontend_that_can_not_be_notified_is_notified_later(self, house: House, tmp_path: Path) -> None:
        in_the_way = tmp_path / "state" / "config.new"
        in_the_way.mkdir()
        house.enforce(zone("acme"))
        assert house.of_frontend().config is None
        in_the_way.rmdir()
        eventually(lambda: house.of_frontend().config is not None)

    def test_a_config_that_the_api_server_cannot_read_is_rejected_until_it_can(
        self, house: House, tmp_path: Path
    ) -> None:
        in_the_way = tmp_path / "state" / "config.new"
        in_the_way.mkdir()
        generation = house.declare(zone("acme"))
        rejected = house.await_report(lambda report: report.config.rejected).config.rejected
        assert rejected is not None
        assert rejected.generation == generation
        assert "the API server cannot read it and enforces an earlier config" in rejected.error
        in_the_way.rmdir()
        house.await_report(lambda report: report.config.rejected is None)

    @pytest.mark.parametrize("what", ["folder", "file"])
    def test_a_removed_config_is_written_again(self, house: House, tmp_path: Path, what: str) -> None:
        state = tmp_path / "state"
        house.enforce(zone("acme"))
        eventually(lambda: house.of_frontend().config is not None)
        if what == "folder":
            shutil.rmtree(state)
        else:
            (state / "config.json").unlink()
        eventually(lambda: house.of_frontend().config is not None)
        assert what == "file" or state.stat().st_mode & 0o777 == 0o700
        house.enforce(zone("acme"), zone("burst"))

        def tenants() -> list[str]:
            config = house.of_frontend().config
            return [] if config is None else [each.tenant for each in config.zones]

        eventually(lambda: tenants() == ["acme", "burst"])

    def test_a_config_that_fails_in_the_midst_loses_no_block(
        self, engine: DrivenEngine, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What it evicted before it failed is free, and the previous config is active again."""
        house.enforce(zone("acme"))
        engine.send("acme", 50)
        run(engine)
        add_zone = configure.add_zone

        def fail(ledger: Ledger, spec: ZoneSpec) -> Zone:
            if spec.tenant == "trouble":
                raise RuntimeError("bad luck")
            return add_zone(ledger, spec)

        monkeypatch.setattr(configure, "add_zone", fail)
        house.declare(zone("acme", limit=10), zone("trouble"))
        report = house.await_report(lambda report: report.config.rejected)
        assert report.config.rejected is not None
        assert (report.config.applied_generation, report.config.rejected.generation) == (1, 2)
        (acme,) = report.zones
        assert (acme.limit, acme.cached, report.free_blocks) == (CAPACITY, 10, CAPACITY - 10)

    def test_a_purge_is_carried_out_before_its_config_is_in_force_and_reported(
        self, engine: DrivenEngine, house: House
    ) -> None:
        house.enforce(zone("acme"), zone("burst"))
        for tenant in ("acme", "burst"):
            engine.send(tenant, 20)
        run(engine)
        house.enforce(zone("acme", purge="one"), zone("burst"))
        acme, burst = house.report().zones
        assert acme.purge is not None
        assert (acme.purge.id, acme.purge.evicted, acme.cached) == ("one", 20, 0)
        assert (burst.purge, burst.cached) == (None, 20)
        labels = {"pool": "main", "zone": "acme", "tenant": "acme", "reason": "purge", "beneficiary": "none"}
        assert house.metric("zone_evicted_blocks_total", **labels) == 20
        house.stop()
        (reported,) = [record for record in records(house.journal) if record["kind"] == "purged"]
        assert {key: reported[key] for key in ("zone", "id", "evicted", "withdrawn")} == {
            "zone": "acme",
            "id": "one",
            "evicted": 20,
            "withdrawn": 0,
        }

    def test_what_the_engine_is_too_small_for_is_named(self, house: House, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING, logger=reloading.__name__)
        house.enforce(zone("old", reserved=60), zone("large", reserved=50))
        assert [each.awaited_reservation for each in house.report().zones] == [0, 50]
        (warning,) = [record.getMessage() for record in caplog.records if record.name == reloading.__name__]
        assert warning.endswith("large (50 blocks)")

    def test_seats_are_reported_and_what_zones_reserve_of_them_by_name(self, house: House) -> None:
        house.enforce(zone("plain"))
        seats = house.report().seats
        assert seats > 1
        by_name = SeatShare(reserved=seats - 1)
        house.enforce(zone("old", seats=by_name), zone("young", seats=by_name), zone("plain", reserved="100%"))
        reported = {each.name: (each.reserved_seats, each.awaited_seats) for each in house.report().zones}
        assert reported == {"old": (seats - 1, 0), "young": (0, seats - 1), "plain": (1, 0)}

    # Requests

    def test_what_runs_and_waits_is_reported(self, engine: DrivenEngine, house: House) -> None:
        house.enforce(zone("acme", limit=10), zone("burst"))
        for _ in range(2):
            engine.send("acme", 6, steps=10)
        engine.step()
        acme = house.await_zone("acme", running_requests=1)
        assert (acme.state, acme.in_use, acme.waiting_requests, acme.wait_reason) == ("Active", 7, 1, "limit")
        assert house.report().free_blocks == CAPACITY - 7
        run(engine)
        acme = house.await_zone("acme", state="Idle")
        # The second one's six full blocks, and what was left of the first one's next to its seven.
        assert (acme.in_use, acme.cached, acme.running_requests, acme.waiting_requests) == (0, 9, 0, 0)
        assert acme.prompt_tokens == 2 * (6 * engine.served.block_size_tokens + 1)
        labels = {"pool": "main", "zone": "acme", "tenant": "acme"}
        assert house.metric("zone_blocks_cached", **labels) == 9
        assert house.metric("zone_prompt_tokens_total", **labels) == acme.prompt_tokens

    def test_a_request_that_is_refused_is_reported(self, engine: DrivenEngine, house: House) -> None:
        house.enforce(zone("acme"))
        engine.send("unknown", 3)
        run(engine)
        assert house.metric("engine_refused_requests_total", reason="unknown_tenant") == 1
        house.stop()
        (refused,) = [each for each in records(house.journal) if each["kind"] == "refused"]
        assert (refused["zone"], refused["reason"]) == ("unknown", "unknown_tenant")

    def test_tenants_beyond_the_bound_share_their_metrics(self, engine: DrivenEngine, tmp_path: Path) -> None:
        bound = {"TENANTZONE_MAX_AUTO_REGISTERED_SERIES": "0"}
        with House(engine.served, tmp_path, **bound) as house:
            house.enforce(unknown_tenants=UnknownTenants(mode="AutoRegister"))
            for tenant in ("one", "two"):
                engine.send(tenant, 3)
            run(engine)
            tokens = 2 * (3 * engine.served.block_size_tokens + 1)
            house.await_metric(tokens, "zone_prompt_tokens_total", pool="main", zone="overflow", tenant="overflow")

    # Blocks

    def test_a_picture_shows_what_each_block_is_used_for(self, engine: DrivenEngine, house: House) -> None:
        house.enforce(zone("acme"))
        assert shown(house) == {(None, "free"): CAPACITY}
        engine.send("acme", 3, steps=10)
        engine.step()
        assert shown(house) == {("acme", "in_use"): 4, (None, "free"): CAPACITY - 4}
        run(engine)
        assert shown(house) == {("acme", "cached"): 3, (None, "free"): CAPACITY - 3}

    def test_a_full_engine_shows_no_other_block(self, engine: DrivenEngine, house: House) -> None:
        house.enforce(zone("acme"))
        engine.send("acme", CAPACITY - 1, steps=10)
        engine.step()
        assert shown(house) == {("acme", "in_use"): CAPACITY}

    # Time

    def test_a_quiet_zones_cache_goes_without_a_step(self, engine: DrivenEngine, house: House) -> None:
        idle = Idle(after_seconds=0, evict_after_seconds=1)
        house.enforce(zone("acme", idle=idle), zone("burst"))
        for tenant in ("acme", "burst"):
            engine.send(tenant, 3)
        run(engine)
        # On a slow machine, acme may have been evicted before, without a request.
        house.await_zone("burst", cached=3)
        house.await_zone("acme", state="Evicted", cached=0)
        report = house.report()
        assert (report.zones[1].cached, report.free_blocks) == (3, CAPACITY - 3)

    def test_a_loans_times_are_those_of_the_wall_clock(self, engine: DrivenEngine, house: House) -> None:
        house.enforce(zone("acme", reserved=60, idle=AT_ONCE), zone("burst"))
        began = time.time()
        engine.send("burst", 70)
        run(engine)
        (loan,) = house.await_report(lambda report: report.loans).loans
        assert (loan.lender, loan.borrower, loan.blocks) == ("acme", "burst", 30)
        assert began - 1 <= loan.since_unix_time <= time.time() + 1

    # The salt key

    def test_a_new_salt_key_frees_what_was_cached_under_the_one_before(
        self, engine: DrivenEngine, house: House, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, logger=salting.__name__)
        house.give_salt_key(FIRST_KEY)
        house.await_report(lambda report: report.salt_key == SaltKeyStatus(id=salt_key_id(FIRST_KEY)))
        house.enforce(zone("acme"), zone("burst"))
        for tenant, blocks in (("acme", 30), ("burst", 20)):
            engine.send(tenant, blocks)
        run(engine)
        engine.send("acme", 10, steps=10)
        engine.step()
        house.give_salt_key(SECOND_KEY)
        report = house.await_report(lambda report: report.salt_key == SaltKeyStatus(id=salt_key_id(SECOND_KEY)))
        acme, burst = report.zones
        assert (acme.cached, acme.in_use, burst.cached) == (0, 11, 0)
        assert (acme.evicted.get("reset"), burst.evicted.get("reset")) == (30, 20)
        assert report.free_blocks == CAPACITY - 11
        assert f"{salt_key_id(SECOND_KEY)} is in force; 50 blocks cached before it are free" in caplog.text
        run(engine)

    def test_a_salt_key_that_stays_evicts_nothing(self, engine: DrivenEngine, house: House) -> None:
        house.give_salt_key(FIRST_KEY)
        house.await_report(lambda report: report.salt_key == SaltKeyStatus(id=salt_key_id(FIRST_KEY)))
        house.enforce(zone("acme"))
        engine.send("acme", 30)
        run(engine)
        house.give_salt_key(FIRST_KEY)
        house.give_salt_key(b"too short")
        report = house.await_report(lambda report: report.salt_key and report.salt_key.error)
        assert report.salt_key is not None
        assert report.salt_key.id == salt_key_id(FIRST_KEY)
        assert house.await_zone("acme", state="Idle").cached == 30

    def test_without_a_salt_key_it_says_that_a_restart_loses_the_cache(
        self, house: House, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert house.report().salt_key == SaltKeyStatus()
        (line,) = [record.getMessage() for record in caplog.get_records("setup") if record.name == salting.__name__]
        assert "cached chunks are lost on a restart" in line

    # The lock

    @pytest.mark.parametrize("what", ["send", "step", "apply_config", "evict_cache", "let_time_pass"])
    def test_whatever_changes_zones_waits_for_the_lock(self, engine: DrivenEngine, what: str) -> None:
        served = engine.served
        served.apply_config(config(1, zone("acme")))
        engine.send("acme", 3, steps=10)
        changes: dict[str, Callable[[], object]] = {
            "send": lambda: engine.send("acme", 3),
            "step": engine.step,
            "apply_config": lambda: served.apply_config(config(2, zone("acme", reserved=5))),
            "evict_cache": served.evict_cache,
            "let_time_pass": served.let_time_pass,
        }
        thread = threading.Thread(target=changes[what], daemon=True)
        with served.zone_lock:
            thread.start()
            thread.join(0.2)
            assert thread.is_alive(), "it did not wait"
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive(), "it waits on, although the lock is free"

    def test_steps_are_made_while_the_house_is_kept(self, engine: DrivenEngine, house: House) -> None:
        for number in range(5):
            zones = zone("acme", reserved=10 * number), zone("burst", limit=CAPACITY - 10 * number)
            generation = house.declare(*zones, zone(f"guest-{number}"))

            def work_until_applied(generation: int = generation) -> bool:
                for tenant, blocks in (("acme", 5), ("burst", 20)):
                    engine.send(tenant, blocks, steps=3)
                for _ in range(5):
                    engine.step()
                house.picture(CAPACITY)
                house.metric("engine_free_blocks")
                return house.report().config.applied_generation == generation

            eventually(work_until_applied)
        run(engine)
        report = house.await_report(lambda report: all(each.state == "Idle" for each in report.zones))
        assert report.free_blocks + sum(each.cached for each in report.zones) == CAPACITY

    # The journal

    def test_the_journal_holds_and_its_bill_is_what_the_zones_counted(self, engine: DrivenEngine, house: House) -> None:
        house.enforce(zone("acme"), zone("burst"))
        for tenant in ("acme", "burst", "acme"):
            engine.send(tenant, 5)
            run(engine)
        tokens = 5 * engine.served.block_size_tokens + 1
        reported = {
            tenant: house.await_zone(tenant, prompt_tokens=times * tokens)
            for tenant, times in (("acme", 2), ("burst", 1))
        }
        house.stop()
        started = records(house.journal)[0]
        assert (started["engineVersion"], started["capacityBlocks"], started["blockSizeTokens"]) == (
            engine.served.engine_version,
            CAPACITY,
            engine.served.block_size_tokens,
        )
        assert {"config_applied", "lifecycle", "balance", "usage"} <= set(kinds(house.journal))
        billed = make_bill([house.journal], Period()).zones
        assert set(billed) == {"acme", "burst"}
        for tenant, used in billed.items():
            assert used.prompt_tokens == reported[tenant].prompt_tokens
            # A journal has a resolution of thousandths.
            assert used.block_seconds > 0
            assert used.block_seconds > reported[tenant].block_seconds - 0.002


def shown(house: House) -> dict[tuple[str | None, str], int]:
    """The number of blocks in the picture, by tenant and use."""
    picture = house.picture(CAPACITY)
    assert (picture.capacity_blocks, picture.blocks_per_cell) == (CAPACITY, 1)
    return {(kind.tenant, kind.use): kind.blocks for kind in picture.kinds}


def check_blocks(served: ServedEngine) -> None:
    with served.zone_lock:
        served.tenancy.ledger.check(served.free_blocks, len(served.block_ids))
