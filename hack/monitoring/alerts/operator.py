"""Alerts about the way from a TenantZone to the engines: the operator, the config, the pool."""

from hack.monitoring.model import Alert
from hack.monitoring.time_scale import TimeScale

_POOL = "{{ $labels.pool_namespace }}/{{ $labels.pool }}"


def operator_alerts(time_scale: TimeScale) -> tuple[Alert, ...]:
    """Returns all alerts for a scale of time."""
    return (*_config(time_scale), _overcommitted(time_scale), _refused(time_scale), *_operator(time_scale))


def _config(time_scale: TimeScale) -> tuple[Alert, ...]:
    # Only the leader has these, and two may have been scraped around a change of leaders.
    newest = "max by (pool_namespace, pool) (tenantzone_pool_generation offset {})"
    applied = "max by (pool_namespace, pool, engine) (tenantzone_pool_engine_generation)"
    return (
        Alert(
            "TenantZoneConfigRejected",
            "warning",
            "tenantzone_config_rejected * on (namespace, pod) group_left (pool) tenantzone_engine_info == 1",
            time_scale(2),
            "Engine {{ $labels.namespace }}/{{ $labels.pod }} refuses its config",
            "Engine {{ $labels.namespace }}/{{ $labels.pod }} of pool {{ $labels.pool }} refuses the newest config. It"
            " enforces the last good one: no change gets through.",
        ),
        Alert(
            "TenantZoneEngineLagging",
            "warning",
            # Compared with the newest generation three minutes ago: a pool that is edited all the time is not late.
            f"{newest.format(time_scale(3))} - on (pool_namespace, pool) group_right () {applied} > 0",
            time_scale(1),
            f"Engine {{{{ $labels.engine }}}} of pool {_POOL} enforces an old config",
            f"Engine {{{{ $labels.engine }}}} of pool {_POOL} is {{{{ $value }}}} generations behind the config"
            " that was written three minutes ago.",
        ),
    )


def _overcommitted(time_scale: TimeScale) -> Alert:
    return Alert(
        "TenantZonePoolOvercommitted",
        "warning",
        "max by (pool_namespace, pool) (tenantzone_pool_overcommitted_zones) > 0",
        time_scale(10),
        f"Zones do not fit into pool {_POOL}",
        f"{{{{ $value }}}} zones ask for reservations that pool {_POOL} does not have. Those zones are not enforced.",
    )


def _refused(time_scale: TimeScale) -> Alert:
    refused = 'max by (pool_namespace, pool) (tenantzone_pool_zones{condition="accepted",status="false"})'
    # Zones without room have an alert of their own. A pool that does not exist has no such series.
    without_room = "max by (pool_namespace, pool) (tenantzone_pool_overcommitted_zones)"
    return Alert(
        "TenantZoneNotAccepted",
        "warning",
        f"{refused} > {without_room} or ({refused} > 0 unless {without_room})",
        time_scale(5),
        f"Zones of pool {_POOL} are refused",
        f"Zones of pool {_POOL} are refused, and not for want of room: each says why in its condition Accepted."
        " Those zones are not enforced.",
    )


def _operator(time_scale: TimeScale) -> tuple[Alert, ...]:
    return (
        Alert(
            "TenantZoneOperatorDown",
            "warning",
            "absent(tenantzone_operator_info)",
            time_scale(5),
            "No TenantZone operator answers",
            "Prometheus gets no metrics of any operator. Engines enforce the config that they have; no change gets"
            " through, and status grows old.",
        ),
        Alert(
            "TenantZoneOperatorWithoutLeader",
            "warning",
            "sum(tenantzone_operator_leading) == 0",
            time_scale(2),
            "No TenantZone operator leads",
            "Operators run, and none of them leads. Engines enforce the config that they have; no change gets through.",
        ),
    )
