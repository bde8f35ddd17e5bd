"""Pictures of many tenants: the largest are drawn separately, and the others as one."""

import re

from tenantzone_replay.results.html import pictures, report
from tenantzone_replay.simulation.locality import Locality
from tenantzone_replay.simulation.measures import Moment, Result, TenantMeasures

TENANTS = [f"tenant-{number}" for number in range(101, 151)]
SHOWN = [*TENANTS[30:], "30 others"]


def result():
    """A result of fifty tenants; each holds, lends and has lost some blocks more than the one before it."""
    blocks = {tenant: number for number, tenant in enumerate(TENANTS, 1)}
    found = Result("zones", "ours", 1000, 16, {tenant: TenantMeasures() for tenant in TENANTS})
    for tenant, lost in blocks.items():
        found.tenants[tenant].evicted["own"] = lost
    found.moments = [Moment(float(second), blocks, 0, 0, 0, 0, blocks) for second in range(3)]
    return found


def test_the_largest_tenants_are_drawn_and_the_others_as_one():
    page = report([result()], "a load", {}, Locality())
    owners, lost, lenders = re.findall("<svg.*?</svg>", page.partition("Who held the blocks")[2])
    for picture in (owners, lenders):
        assert re.findall(r">([^<]*)</text>", picture)[-21:] == SHOWN
        assert picture.count("<polyline") == 21
    assert re.findall(r'text-anchor="middle">([^<]*)<', lost) == SHOWN
    # The highest one has as much as the thirty smallest together.
    assert f">{sum(range(1, 31))}</text>" in lost
    assert owners == pictures([result()], [])["owners-zones"][1].partition("<figure>")[2].removesuffix("</figure>")


def test_the_page_names_load_model_and_options():
    about = {"load": "12 requests", "model": "a <model>", "options": "--blocks 1000 --seats 8"}
    page = report([result()], "a load", about, Locality())
    assert "<dt>load</dt><dd>12 requests</dd><dt>model</dt><dd>a &lt;model&gt;</dd>" in page
    assert "<dt>options</dt><dd>--blocks 1000 --seats 8</dd>" in page
