"""Alerts about tiers below engines' blocks. What goes wrong there costs hits, and no request: none of them pages."""

from hack.monitoring.model import Alert
from hack.monitoring.pace import Pace

REFUSED = 0.1
"""Of the chunks that a zone's requests would have stored."""

_WHERE = "zone {{ $labels.zone }} (tenant {{ $labels.tenant }}, pool {{ $labels.pool }})"
_TIER = "tier {{ $labels.tier }} of engine {{ $labels.namespace }}/{{ $labels.pod }}"
_CHUNKS = '{{ $value | printf "%.0f" }}'


def tier_alerts(pace: Pace) -> tuple[Alert, ...]:
    """All of them, for a pace."""
    return (_failing(pace), _full(pace), _floor(pace), _corruption(pace))


def _failing(pace: Pace) -> Alert:
    return Alert(
        "TenantZoneTierFailing",
        "warning",
        "tenantzone_tier_failing * on (namespace, pod) group_left (pool) tenantzone_engine_info == 1",
        pace(5),
        f"{_TIER} fails",
        f"{_TIER} (pool {{{{ $labels.pool }}}}) can't store or can't load. Requests are served, and compute what"
        " it does not give.",
    )


def _full(pace: Pace) -> Alert:
    return Alert(
        "TenantZoneTierFull",
        "warning",
        f"tenantzone:zone_tier_refused:ratio15m > {REFUSED}",
        pace(15),
        f"{_TIER} has no room for {_WHERE}",
        f"{{{{ $value | humanizePercentage }}}} of what {_WHERE} would have stored in {_TIER} had no room there. Its"
        " limit, or what others are promised there, leaves it too little.",
    )


def _floor(pace: Pace) -> Alert:
    refused = 'tenantzone_zone_tier_refused_chunks_total{reason="reserved"}'
    return Alert(
        "TenantZoneTierFloorNotHeld",
        "warning",
        f"sum without (reason) (increase({refused}[{pace(5)}])) > 0",
        pace(5),
        f"What {_WHERE} has reserved of {_TIER} is not held",
        f"In five minutes {_CHUNKS} chunks of {_WHERE} were not stored in {_TIER}, with which it would still have been"
        " within its reservation.",
    )


def _corruption(pace: Pace) -> Alert:
    corrupt = 'tenantzone_zone_tier_lost_chunks_total{reason="corrupt"}'
    return Alert(
        "TenantZoneTierCorruption",
        "warning",
        # A zone that was made after the last scrape has no zero to rise from.
        f"increase({corrupt}[{pace(15)}]) > 0 or ({corrupt} > 0 unless {corrupt} offset {pace(15)})",
        "",
        f"{_TIER} has chunks that are not what {_WHERE} stored",
        f"{_TIER} gave chunks to {_WHERE} that were changed, cut off, swapped or another's. None was used: they were"
        " computed again. The disk is failing, or somebody writes to it.",
    )
