"""Alerts about the KV-cache manager. What goes wrong there costs hits, and no request: none of them pages."""

from hack.monitoring.model import Alert
from hack.monitoring.time_scale import TimeScale

NO_ROOM = 0.1
"""The part of the blocks that a group's engines would have written."""


def manager_alerts(time_scale: TimeScale) -> tuple[Alert, ...]:
    """Returns all alerts for a scale of time."""
    wished = f'tenantzone_manager_write_blocks_total{{standing=~"write|no_room"}}[{time_scale(15)}]'
    refused = f'tenantzone_manager_write_blocks_total{{standing="no_room"}}[{time_scale(15)}]'
    skipped = f'tenantzone_tier_questions_total{{outcome="skipped"}}[{time_scale(5)}]'
    return (
        _down(time_scale),
        Alert(
            "TenantZoneManagerIndexDown",
            "warning",
            "min by (namespace, pod) (tenantzone_manager_index_available) == 0",
            time_scale(5),
            "The index of KV-cache manager {{ $labels.namespace }}/{{ $labels.pod }} does not answer",
            "KV-cache manager {{ $labels.namespace }}/{{ $labels.pod }} can't answer, as its index does not. Engines"
            " compute what they would have found.",
        ),
        Alert(
            "TenantZoneManagerStorageUnavailable",
            "warning",
            # A disabled storage is no problem.
            "min by (namespace, storage, type) (tenantzone_manager_storage_available) == 0"
            " unless min by (namespace, storage, type) (tenantzone_manager_storage_enabled) == 0",
            time_scale(5),
            "KV-cache storage {{ $labels.storage }} can't be used",
            "Storage {{ $labels.storage }} ({{ $labels.type }}) is unhealthy. What lies there is not"
            " found, and blocks go to the next storage of each group.",
        ),
        Alert(
            "TenantZoneManagerGroupFull",
            "warning",
            f"sum by (namespace, group) (increase({refused}))"
            f" / (sum by (namespace, group) (increase({wished})) > 0) > {NO_ROOM}",
            time_scale(15),
            "KV-cache group {{ $labels.group }} has no room",
            "{{ $value | humanizePercentage }} of the blocks that engines of group {{ $labels.group }} would have"
            " written had no room within its limits or in its storages.",
        ),
        Alert(
            "TenantZoneManagerDeletionsFail",
            "warning",
            f"sum by (namespace) (increase(tenantzone_manager_failed_deletions_total[{time_scale(5)}])) > 0",
            time_scale(10),
            "KV-cache storages do not delete what was evicted",
            "A storage does not delete blocks that have gone. They take room, and count against their group's limit.",
        ),
        Alert(
            "TenantZoneManagerWithoutLeader",
            "warning",
            "sum by (namespace) (tenantzone_manager_leader) == 0",
            time_scale(2),
            "No KV-cache manager of {{ $labels.namespace }} leads",
            "KV-cache managers run, and none of them leads: nothing is evicted, and groups fill up.",
        ),
        Alert(
            "TenantZoneManagerNotAsked",
            "warning",
            f"sum by (namespace, pod) (increase({skipped})) > 0",
            time_scale(5),
            "Engine {{ $labels.namespace }}/{{ $labels.pod }} does not ask the KV-cache manager",
            "Engine {{ $labels.namespace }}/{{ $labels.pod }} has stopped asking the KV-cache manager, as it failed"
            " five times in a row. Its requests compute what others have stored.",
        ),
    )


def _down(time_scale: TimeScale) -> Alert:
    """Alerts if no client gets an answer: a manager that is gone, or never was there, reports nothing itself."""

    def asked(outcomes: str) -> str:
        return f'sum(increase(tenantzone_tier_questions_total{{outcome=~"{outcomes}"}}[{time_scale(5)}])) > 0'

    answers = "max(tenantzone_operator_manager_answers)"
    # Engines may use a manager that the operator does not know. If the operator gets answers, the engines are at fault.
    of_engines = f"{asked('late|failed|skipped')} unless {asked('answered')} unless {answers} == 1"
    return Alert(
        "TenantZoneManagerDown",
        "warning",
        f"{answers} == 0 or ({of_engines})",
        time_scale(5),
        "No KV-cache manager answers",
        "The operator gets no answer of the KV-cache manager, or no engine does. Engines compute what they would have"
        " found, and store nothing; of KVStorages and KVCacheGroups no change gets through.",
    )
