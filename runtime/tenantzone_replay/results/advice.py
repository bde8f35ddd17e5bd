"""Renders the advised zones as YAML for ``kubectl apply``, and the reasons for the advice as text and tables."""

import json
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_replay.results.tables import columns, percent, whole_percent
from tenantzone_replay.search import Candidate, pareto
from tenantzone_replay.simulation.measures import Result
from tenantzone_replay.simulation.policies import changed
from tenantzone_replay.simulation.setting import Setting
from tenantzone_replay.traces.tenants import NAME_RULE, can_have_zone

_NAMED: Final = 10
"""Maximum number of tenants that a message names."""


def choose(candidates: Sequence[Candidate], wanted: float) -> Candidate:
    """Returns the cheapest candidate that reaches the target for each tenant.

    If no candidate reaches the target, returns the one whose worst tenant has the most requests in time.

    Args:
        candidates: at least one candidate.
        wanted: the fraction of each tenant's requests that must be in time.
    """
    enough = [each for each in candidates if each.worst >= wanted]
    if enough:
        return min(enough, key=lambda each: (each.cost, -each.worst))
    return max(candidates, key=lambda each: (each.worst, -each.cost))


def front_table(candidates: Sequence[Candidate], setting: Setting, stock: Result, present: Result | None = None) -> str:
    """Returns a table of the candidates with the best trade-offs, followed by the current zones and stock vLLM.

    Args:
        candidates: the tried candidates.
        setting: the load and the engine.
        stock: the result of stock vLLM.
        present: the result of the current zones, or None if no current zones were given.
    """
    rows: list[Sequence[str]] = [
        (
            "blocks",
            "GiB",
            "tier",
            "worst tenant in time",
            "all in time",
            "hit rate",
            "lending",
            "limits",
            "seats",
            "policy",
        )
    ]
    for each in pareto(candidates):
        rows.append(
            (
                f"{each.blocks:,}",
                f"{_gibibytes(each.blocks, setting):.1f}",
                f"{each.tier_blocks:,}",
                f"{each.worst:.1%}",
                f"{each.result.attainment:.1%}",
                f"{each.result.hit_rate:.1%}",
                "yes" if each.lends else "no",
                "yes" if any(zone.limit is not None for zone in each.zones) else "no",
                "alike" if any(zone.seats.reserved is not None for zone in each.zones) else "with blocks",
                each.zones[0].eviction_policy,
            )
        )
    if present is not None:
        rows.append(_without_search(present, setting, "present zones"))
    rows.append(_without_search(stock, setting, "stock vLLM"))
    return columns(rows)


def _without_search(result: Result, setting: Setting, what: str) -> Sequence[str]:
    """Returns the table row of a result that does not belong to a candidate."""
    size = f"{_gibibytes(result.blocks, setting):.1f}"
    parts = (f"{part:.1%}" for part in (result.worst, result.attainment, result.hit_rate))
    return (f"{result.blocks:,}", size, "0", *parts, "", "", "", what)


def beside_present(chosen: Candidate, present: Result, wanted: float) -> str:
    """Returns a sentence with the result of the current zones, and a remark if the advised zones are not better.

    Args:
        chosen: the advised candidate.
        present: the result of the current zones, with all of the engine's memory.
        wanted: the fraction of each tenant's requests that must be in time.
    """
    has = (
        f"The present zones have {_at_least(present.worst)} in time with {present.blocks:,} blocks for the tenant that "
        f"has least there"
    )
    needs_less = present.worst >= wanted and chosen.worst >= wanted and chosen.cost < present.blocks
    if needs_less or present.worst < min(chosen.worst, wanted):
        return f"{has}."
    return f"{has}: what is advised does not beat them for this load."


def beside_stock(chosen: Candidate, stock: Result, wanted: float) -> str:
    """Returns a sentence with the result of stock vLLM, and a remark if the advised zones are not better.

    Args:
        chosen: the advised candidate.
        stock: the result of stock vLLM with the same number of blocks.
        wanted: the fraction of each tenant's requests that must be in time.
    """
    has = f"Stock vLLM with as many blocks has {_at_least(stock.worst)} in time for the tenant that has least there"
    if stock.worst < min(chosen.worst, wanted):
        return f"{has}."
    return f"{has}: these zones do not beat it for this load."


def return_table(candidates: Sequence[Candidate], setting: Setting, gpu_hour: float | None) -> str:
    """Returns a table with one row for each step from a memory size to the next: the gain per additional GiB.

    Of the candidates with the same memory size, the table uses the one with the most cache hits.

    Args:
        candidates: the tried candidates.
        setting: the load and the engine.
        gpu_hour: the price of a GPU hour, or None if unknown.
    """
    best: dict[int, Candidate] = {}
    for each in candidates:
        if each.blocks not in best or each.result.hit_tokens > best[each.blocks].result.hit_tokens:
            best[each.blocks] = each
    sizes = [best[blocks] for blocks in sorted(best)]
    unit = "GiB" if setting.hardware.cache_bytes_per_token else "1,000 blocks"
    rows: list[Sequence[str]] = [
        ("blocks", unit, f"a {unit} more saves, an hour: prompt tokens", "GPU seconds", "money")
    ]
    for smaller, larger in pairwise(sizes):
        more = _size(larger, setting) - _size(smaller, setting)
        hours = max(larger.result.seconds, 1e-9) / 3600
        tokens = (larger.result.hit_tokens - smaller.result.hit_tokens) / more / hours
        busy = smaller.result.busy_seconds - larger.result.busy_seconds
        seconds = busy * setting.hardware.gpu_count / more / hours
        money = "" if gpu_hour is None else f"{seconds / 3600 * gpu_hour:.2f}"
        rows.append((f"{larger.blocks:,}", f"{_size(larger, setting):.1f}", f"{tokens:,.0f}", f"{seconds:,.1f}", money))
    return columns(rows)


def named_as(chosen: Candidate, present: Iterable[ZoneConfig]) -> Candidate:
    """Returns the advised candidate with the current zones' names, so that ``kubectl apply`` replaces these zones.

    Args:
        chosen: the advised candidate.
        present: the current zones, with a zone for each tenant of the candidate.
    """
    names = {zone.tenant: zone.name for zone in present}
    return replace(chosen, zones=tuple(changed(zone, name=names[zone.tenant]) for zone in chosen.zones))


def as_yaml(
    chosen: Candidate,
    candidates: Sequence[Candidate],
    setting: Setting,
    wanted: float,
    pool: str,
    stock: Result,
    present: Result | None = None,
) -> str:
    """Returns a pool's TenantZones as YAML. A top comment explains the advice and names tenants without a zone."""
    why = [f"{_why(chosen, candidates, setting, wanted)} {beside_stock(chosen, stock, wanted)}"]
    if present is not None:
        why.append(beside_present(chosen, present, wanted))
    if left_out := nobodys(zone.tenant for zone in chosen.zones):
        why.append(left_out)
    comment = [f"# {line}" for text in why for line in textwrap.wrap(text, 110)]
    zones = [_zone(zone, pool) for zone in chosen.zones if can_have_zone(zone.tenant)]
    return "\n".join([*comment, *zones]) + "\n"


def nobodys(tenants: Iterable[str]) -> str:
    """Returns a sentence with the tenants whose names are invalid for a zone, or "" if all names are valid."""
    found = [repr(tenant) for tenant in tenants if not can_have_zone(tenant)]
    if not found:
        return ""
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return f"The zones of {', '.join(found[:_NAMED])}{more} are left out because their names are invalid; {NAME_RULE}."


def _why(chosen: Candidate, candidates: Sequence[Candidate], setting: Setting, wanted: float) -> str:
    target = setting.target
    tenants = chosen.result.tenants
    last = min(tenants, key=lambda tenant: tenants[tenant].attainment)
    reached = "has" if chosen.worst >= wanted else "was to have, and does not reach:"
    tier = f" and a tier of {chosen.tier_blocks:,} blocks of CPU memory" if chosen.tier_blocks else ""
    size = _gibibytes(chosen.blocks, setting)
    text = (
        f"With {chosen.blocks:,} blocks of {setting.shape.block_tokens} tokens ({size:.1f} GiB){tier} on "
        f"{setting.hardware.title}, each tenant {reached} {percent(wanted)} of its requests in time (first token "
        f"within {target.first_token:g} s, {target.token:g} s from token to token); {last} has least with "
        f"{_at_least(chosen.worst)}. {chosen.result.hit_rate:.1%} of all prompt tokens were found in the cache. "
    )
    equal = [each for each in candidates if each.is_equal and each.worst >= wanted]
    if equal and chosen.worst >= wanted:
        least = min(equal, key=lambda each: each.cost)
        below = f" and a tier of {least.tier_blocks:,}" if least.tier_blocks else ""
        saved = whole_percent(1 - chosen.cost / least.cost)
        text += f"Equal shares needed {least.blocks:,} blocks{below} for the same, which is {saved} saved. "
    elif chosen.worst >= wanted:
        text += "Equal shares did not come so far with any memory that was tried. "
    return text + (
        f"Found by replaying {setting.profile.requests:,} requests of {setting.profile.seconds:,.0f} s "
        f"{len(candidates)} times; another load may need other zones."
    )


def _at_least(part: float) -> str:
    """Formats a fraction, rounded down, as a percentage. So a result just below the target does not look sufficient."""
    return f"{math.floor(1000 * part + 1e-9) / 1000:.1%}"


def _zone(zone: ZoneConfig, pool: str) -> str:
    lines = [
        "---",
        "apiVersion: tenantzone.io/v1alpha1",
        "kind: TenantZone",
        f"metadata: {{name: {json.dumps(zone.name)}}}",
        "spec:",
        f"  pool: {json.dumps(pool)}",
        f"  tenant: {json.dumps(zone.tenant)}",
        f"  reserved: {json.dumps(zone.reserved)}",
        f"  weight: {zone.weight}",
    ]
    if zone.limit is not None:
        lines.append(f"  limit: {json.dumps(zone.limit)}")
    if zone.eviction_policy != "LRU":
        lines.append(f"  evictionPolicy: {zone.eviction_policy}")
    if zone.seats.reserved is not None:
        lines.append(f"  seats: {{reserved: {json.dumps(zone.seats.reserved)}}}")
    if zone.lending.lendable == 0:
        lines.append("  lending: {lendable: 0}")
    return "\n".join(lines)


def _size(each: Candidate, setting: Setting) -> float:
    return _gibibytes(each.blocks, setting) or each.blocks / 1000


def _gibibytes(blocks: int, setting: Setting) -> float:
    return blocks * setting.shape.block_tokens * setting.hardware.cache_bytes_per_token / 2**30
