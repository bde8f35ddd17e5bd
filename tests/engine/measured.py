"""A scheduler whose clocks the test sets forward."""

from types import SimpleNamespace

from vllm.v1.request import RequestStatus

from tenantzone_contract.config import ZoneConfig
from tenantzone_contract.report import ConfigStatus
from tenantzone_runtime.engine import latencies, scheduling
from tenantzone_runtime.engine.reporting import make_figures

UNIX_TIME = 1_000_000.0


class Clock:
    """Both clocks of the runtime, the monotonic one and the wall's."""

    def __init__(self, monkeypatch, driver):
        # The scheduler was made at a time of the machine's own clock.
        self.seconds = driver.scheduler.tenancy.ledger.now + 1.0
        for module in (scheduling, latencies):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=self.monotonic, time=self.time))

    def monotonic(self):
        return self.seconds

    def time(self):
        return UNIX_TIME + self.seconds


def zone(tenant, **fields):
    return ZoneConfig(name=f"{tenant}-zone", tenant=tenant, generation=1, **fields)


def counters(driver, tenant="acme"):
    driver.scheduler.let_time_pass()
    zone = driver.zone(tenant)
    driver.scheduler.tenancy.count(zone)
    return zone.counters


def figures_of(driver):
    figures = make_figures(driver.scheduler, ConfigStatus(), {}, pod="p", started_unix_time=0.0)
    return {each.tenant: each for each in figures.zones}


def abort(driver, request):
    driver.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
