"""Zones with unique names, and what a scheduler counts for them."""

from vllm.v1.request import RequestStatus

from tenantzone_contract.reports.report import ConfigStatus
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_runtime.housekeeping.report.reporting import make_figures


def zone(tenant, **fields):
    return ZoneConfig(name=f"{tenant}-zone", tenant=tenant, generation=1, **fields)


def counters(driver, tenant="acme"):
    driver.scheduler.let_time_pass()
    zone = driver.zone(tenant)
    driver.scheduler.tenancy.count(zone)
    return zone.counters


def figures_of(driver):
    figures = make_figures(driver.served, ConfigStatus(), {}, pod="p", started_unix_time=0.0)
    return {each.tenant: each for each in figures.zones}


def abort(driver, request):
    driver.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
