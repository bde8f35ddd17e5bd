"""Random work for vLLM's real scheduler: no counter decreases, and two ways to count the same thing agree."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.reports.report import ConfigStatus, in_older_words
from tenantzone_contract.zone_config.config import Watermarks, ZoneConfig
from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_config.zone_terms import Idle
from tenantzone_runtime.engine.blocks.requests import zone_of
from tenantzone_runtime.housekeeping.report.reporting import make_figures, make_report
from tenantzone_runtime.journal.record import parse
from tenantzone_runtime.zones.blocks.overflow import OVERFLOW_NAME
from tests.journal.auditor import Auditor
from tests.journal.journals import chain
from tests.zones.history_counted import flat

CAPACITY = 40
TENANTS = ("acme", "burst", "guest-1", "guest-2", "guest-3")
TEMPLATE = UnknownTenantTemplate(idle=Idle(after_seconds=0, forget_after_seconds=0))


@pytest.fixture(scope="module")
def new_driver(tmp_path_factory):
    config = vllm_config(tmp_path_factory.mktemp("model"), max_batched_tokens=256)
    return lambda: Driver(make_scheduler(config, CAPACITY))


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, idle=Idle(after_seconds=0), **fields)


CONFIGS = st.sampled_from(
    [
        (zone("acme", reserved=20, priority=1), zone("burst")),
        (zone("acme", reserved=10, limit=15), zone("burst", reserved=20, priority=2)),
        (zone("acme"), zone("burst", limit=10), zone("guest-1", reserved=10)),
        (zone("acme", reserved=30),),
    ]
)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from(TENANTS), st.integers(0, 12), st.integers(1, 30)),
        st.tuples(st.just("step")),
        st.tuples(st.just("time")),
        st.tuples(st.just("abort"), st.integers(0, 9)),
        st.tuples(st.just("declare"), CONFIGS),
    ),
    min_size=10,
    max_size=60,
)


class Watched:
    """A driver whose counters are checked after each action."""

    def __init__(self, driver):
        self.driver = driver
        self.sent = {}
        self.seen = {}
        self.auditor = Auditor()
        driver.scheduler.tenancy.ledger.overflow.max_apart = 1

    def do(self, action, *arguments):
        scheduler = self.driver.scheduler
        if action == "send":
            tenant, blocks, answer = arguments
            request = self.driver.send(tenant, prompt(blocks, seed=blocks), max_tokens=answer)
            bound_to = zone_of(request)
            if bound_to is not None:
                self.sent.setdefault(bound_to, []).append(request)
        elif action == "step":
            self.driver.step()
        elif action == "time":
            scheduler.let_time_pass()
        elif action == "abort":
            waiting_or_running = list(scheduler.requests)
            names = waiting_or_running[arguments[0] : arguments[0] + 1]
            scheduler.finish_requests(names, RequestStatus.FINISHED_ABORTED)
        else:
            unknown = UnknownTenants(mode="AutoRegister", template=TEMPLATE)
            self.driver.declare(*arguments[0], unknown_tenants=unknown, watermarks=Watermarks(low=0.1, high=0.2))
        self.check()

    def check(self):
        served = self.driver.served
        report = make_report(served, ConfigStatus(), pod="", started_unix_time=0.0)
        figures = make_figures(served, ConfigStatus(), {}, pod="", started_unix_time=0.0)
        for each in figures.zones:
            self._check_zone(each)
        reported = {each.tenant: each for each in report.zones}
        for each in figures.zones:
            if each.tenant in reported:
                assert reported[each.tenant].evicted == each.counters.evicted
                assert reported[each.tenant].evicted_blocks == in_older_words(each.counters.evicted)
        for each, requests in self.sent.items():
            if served.tenancy.ledger.zones.get(each.spec.tenant) is each:
                ended = sum(count for outcome, count in each.counters.requests.items() if outcome != "refused")
                assert ended + each.requests == len(requests)
                tokens = sum(request.num_output_tokens > 0 for request in requests)
                assert each.counters.time_to_first_token.count == tokens
        self._check_that_counters_only_grow(figures)
        self._check_balances()

    def _check_balances(self):
        """A reader of the journal knows what each zone holds."""
        scheduler = self.driver.scheduler
        self.auditor.read(map(parse, chain(scheduler.tenancy.ledger.trail.collect())))
        zones = scheduler.tenancy.ledger.zones.values()
        assert self.auditor.held == {each.spec.tenant: each.held for each in zones if each.held}

    @staticmethod
    def _check_zone(each):
        counters = each.counters
        assert counters.time_to_first_token.count <= counters.queue_time.count
        assert counters.prefix_hit_tokens <= counters.prefix_query_tokens <= counters.prompt_tokens
        assert sum(counters.evictions.values()) == sum(counters.evicted.values())
        assert each.short <= each.reserved

    def _check_that_counters_only_grow(self, figures):
        seen = {each: flat(each.counters) for each in self.driver.scheduler.tenancy.ledger.zones.values()}
        seen |= {each.tenant: flat(each.counters) for each in figures.zones if each.tenant == OVERFLOW_NAME}
        for each, numbers in self.seen.items():
            if each == OVERFLOW_NAME or each in seen:
                assert all(seen[each].get(name, 0) >= number for name, number in numbers.items())
        self.seen = seen


@settings(max_examples=50, deadline=None)
@given(actions=ACTIONS)
def test_counters_only_grow_and_agree(new_driver, actions):
    watched = Watched(new_driver())
    watched.do("declare", (zone("acme", reserved=20, priority=1), zone("burst")))
    for action in actions:
        watched.do(*action)
