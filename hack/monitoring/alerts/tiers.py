"""Alerts about tiers below engines' blocks. What goes wrong there costs hits, and no request: none of them pages.

Engines with detailed metrics say what goes wrong in a tier zone by zone, and so does the alert. Others say it of the
tier as a whole, and so do all of zones that have no series of their own.
"""

from hack.monitoring.model import Alert
from hack.monitoring.time_scale import TimeScale

REFUSED = 0.1
"""The part of the chunks that a zone's requests would have stored."""

_WHERE = "zone {{ $labels.zone }} (tenant {{ $labels.tenant }}, pool {{ $labels.pool }})"
_POOL = "{{ $labels.pool }}"
_TIER = "tier {{ $labels.tier }} of engine {{ $labels.namespace }}/{{ $labels.pod }}"
_CHUNKS = '{{ $value | printf "%.0f" }}'


def _found(of_zones: str, of_tiers: str) -> str:
    """Returns the hits of zones; if there are none, the hits of tiers, with their pool."""
    return (
        f"{of_zones} or ({of_tiers}) * on (namespace, pod) group_left (pool) tenantzone_engine_info"
        f" unless on (namespace, pod, tier) ({of_zones})"
    )


def _text(of_zone: str, of_tier: str) -> str:
    return f"{{{{ if $labels.zone }}}}{of_zone}{{{{ else }}}}{of_tier}{{{{ end }}}}"


def tier_alerts(time_scale: TimeScale) -> tuple[Alert, ...]:
    """Returns all alerts for a scale of time."""
    return (_failing(time_scale), _full(time_scale), _floor(time_scale), _corruption(time_scale))


def _failing(time_scale: TimeScale) -> Alert:
    return Alert(
        "TenantZoneTierFailing",
        "warning",
        "tenantzone_tier_failing * on (namespace, pod) group_left (pool) tenantzone_engine_info == 1",
        time_scale(5),
        f"{_TIER} fails",
        f"{_TIER} (pool {{{{ $labels.pool }}}}) can't store or can't load. Requests are served, and compute what"
        " it does not give.",
    )


def _full(time_scale: TimeScale) -> Alert:
    return Alert(
        "TenantZoneTierFull",
        "warning",
        _found(f"tenantzone:zone_tier_refused:ratio15m > {REFUSED}", f"tenantzone:tier_refused:ratio15m > {REFUSED}"),
        time_scale(15),
        _text(f"{_TIER} has no room for {_WHERE}", f"{_TIER} has no room for zones of pool {_POOL}"),
        _text(
            f"{{{{ $value | humanizePercentage }}}} of what {_WHERE} would have stored in {_TIER} had no room there."
            " Its limit, or what others are promised there, leaves it too little.",
            f"{{{{ $value | humanizePercentage }}}} of what zones of pool {_POOL} would have stored in {_TIER} had no"
            " room there. Their limits, or what others are promised there, leave some of them too little.",
        ),
    )


def _floor(time_scale: TimeScale) -> Alert:
    def refused(of: str) -> str:
        counter = f'{of}_refused_chunks_total{{reason="reserved"}}'
        return f"sum without (reason) (increase({counter}[{time_scale(5)}])) > 0"

    return Alert(
        "TenantZoneTierFloorNotHeld",
        "warning",
        _found(refused("tenantzone_zone_tier"), refused("tenantzone_tier")),
        time_scale(5),
        _text(
            f"What {_WHERE} has reserved of {_TIER} is not held",
            f"What zones of pool {_POOL} have reserved of {_TIER} is not held",
        ),
        _text(
            f"In five minutes {_CHUNKS} chunks of {_WHERE} were not stored in {_TIER}, with which it would still have"
            " been within its reservation.",
            f"In five minutes {_CHUNKS} chunks of zones of pool {_POOL} were not stored in {_TIER}, with which they"
            " would still have been within their reservations.",
        ),
    )


def _corruption(time_scale: TimeScale) -> Alert:
    def found(corrupt: str) -> str:
        # A zone or an engine that was made after the last scrape has no zero to rise from.
        return f"increase({corrupt}[{time_scale(15)}]) > 0 or ({corrupt} > 0 unless {corrupt} offset {time_scale(15)})"

    of_zones = found('tenantzone_zone_tier_lost_chunks_total{reason="corrupt"}')
    return Alert(
        "TenantZoneTierCorruption",
        "warning",
        _found(of_zones, found("tenantzone_tier_corrupt_chunks_total")),
        "",
        _text(
            f"{_TIER} has chunks that are not what {_WHERE} stored",
            f"{_TIER} has chunks that are not what zones of pool {_POOL} stored",
        ),
        f"{_TIER} gave chunks to {_text(_WHERE, f'zones of pool {_POOL}')} that were changed, cut off, swapped or"
        " another's. None was used: they were computed again. The disk is failing, or another program writes to it.",
    )
