"""Advice for each reason of a condition. The condition's message describes a problem, the advice how to fix it."""

from tenantzone_cli.resources import Condition, Zone

_REASONS = {
    "Invalid": "Correct the field that the message names: kubectl edit tz/{zone} -n {namespace}",
    "PoolNotFound": (
        "Create ZonePool {pool} in namespace {namespace}; if the name is wrong, recreate the zone, because "
        "spec.pool is immutable."
    ),
    "PoolInvalid": "Correct ZonePool {pool}: kubectl describe zp/{pool} -n {namespace}",
    "PoolNotServed": (
        "If the operator should serve ZonePool {pool}, add {namespace}/{pool} to the value pools of its chart. "
        "Otherwise delete the pool and its zones, or leave them to another operator."
    ),
    "PoolOvercommitted": (
        "Lower reserved to the blocks that are left (see below), lower reserved of an older zone, or let the pool "
        "select larger engines. Accepted zones keep their reservations."
    ),
    "TenantConflict": "Delete one of the two zones, or recreate this zone with another spec.tenant.",
    "Deleting": "See which finalizer delays the deletion: kubectl get tz/{zone} -n {namespace} -o yaml",
    "Pending": (
        "Wait: kubelet takes a moment to project the config, and more than a minute if a pod can't be annotated. If "
        "this persists: kubectl tenantzone doctor -n {namespace}"
    ),
    "ConfigTooLarge": "Distribute the zones over more pools; the message contains the maximum size of a config.",
    "ConfigNotWritten": "See why the API server refuses the operator's write: kubectl tenantzone doctor -n {namespace}",
    "NoEngines": "Start an engine whose pod has the labels that ZonePool {pool} selects, or wait until it is ready.",
    "EnginesOfAnotherPool": (
        "Change spec.selector of one of the two pools, or recreate the zone in the older pool, because an engine has "
        "the config of only one pool: the oldest pool that selects the engine's pod."
    ),
    "PlaceNamedTwice": "Give each KVStorage that the message names a path or prefix of its own, or delete all but one.",
    "PodsSelectedTwice": "Change spec.selector of one of the pools that the message names.",
    "ConfigRejected": "See the engine's reason in the message. If the engine does not know a field, upgrade the "
    "engine.",
    "ConfigUntrusted": (
        "Another user wrote the ConfigMap tenantzone-{pool}, or the engine and the operator have different keys, or "
        "the operator can't read its key. The operator undoes changes by other users within seconds. If this persists, "
        "follow the message, and check who may write ConfigMaps in namespace {namespace}."
    ),
    "EngineUnreachable": (
        "Check that the pod is healthy, and that a NetworkPolicy and the pool's token let the operator reach its "
        "admin port: kubectl tenantzone doctor -n {namespace}"
    ),
    "ApiServerDiffers": (
        "See the pod's log, because an API server process lags behind the engine core. If this persists, restart the "
        "pod."
    ),
    "EngineUnfit": (
        "If the message says that a limit is below reserved, change one of the two. Otherwise the engine has too "
        "few blocks: start the engine with more cache memory, let ZonePool {pool} select other engines, or lower "
        "reserved of zones. The oldest zones keep their reservations."
    ),
    "ZoneMissing": "The engine has a config without this zone. If this persists, see the engine's log.",
    "ZoneDiffers": "The engine enforces values that differ from its config. If this persists, restart the engine.",
    "IdentityIncomplete": "Add the proof that the message names to ZonePool {pool}; until then no request is served.",
    "IdentityUnusable": (
        "Mount the files that the message names into the engine pods' folder of keys (/etc/tenantzone/keys) or of the "
        "identity (/etc/tenantzone/identity), or correct them."
    ),
    "SecretNotMade": (
        "Give the operator the right to create Secrets, or create the Secret that the message names; see "
        "docs/salts.md and docs/operator.md."
    ),
    "SaltKeyRefused": "Put a valid key into the Secret tenantzone-salt-{pool}, or delete the Secret, and the operator "
    "creates a new one.",
    "NoSaltKey": "Mount the Secret tenantzone-salt-{pool} into all engines; see docs/salts.md for its purpose.",
    "SaltKeysDiffer": "Mount the same Secret, tenantzone-salt-{pool}, into all engines.",
    "TokenRefused": (
        "Mount the Secret tenantzone-admin-{pool} at /etc/tenantzone/admin. If the Secret is mounted, its token was "
        "made with another key: delete the Secret, and the operator creates it again."
    ),
    "TokensBroken": "Correct the Secret tenantzone-admin-{pool}, or delete it, and the operator creates it again.",
    "AdminPortOpen": (
        "Mount the Secret tenantzone-admin-{pool} at /etc/tenantzone/admin, and start the engines without --admin-open."
    ),
    "PurgePending": "Wait, or find out why the engines that the message names do not answer or refuse the config.",
    "PurgeInvalid": "Request the purge with kubectl tenantzone purge {zone} -n {namespace}, which creates a valid id.",
    "LittleLoaded": (
        "Set tiers[].admission of the zone to SeenTwice or Auto, so that only repeated prefixes are stored, or "
        "offload to Never (docs/tiers.md). A new engine, or an engine with enough blocks, also loads little."
    ),
    "TierMissing": (
        "Start the engine with the connector that tenantzone-runtime serve --show-flags prints (docs/tiers.md), or "
        "remove the tier from the spec."
    ),
    "TierTooSmall": (
        "Restart the engine with the tier's size in ZonePool {pool}, or lower the reservations of zones in the tier. "
        "The oldest zones keep their reservations."
    ),
    "TierFailing": (
        "Check the disk that the message names: docs/runbooks/TenantZoneTierFailing.md. Requests are still served."
    ),
    "NoTraffic": "Nothing needs to be done unless requests wait, because the zone had no requests in the last minute.",
    "Warming": "Wait until the engine has measured its first steps.",
    "OwnPrompts": "Raise the target, send shorter prompts or fewer at a time, or add engines to ZonePool {pool}.",
    "OwnLoad": "Lower spec.seats.limit, raise the target, or add engines to ZonePool {pool}.",
    "ModelTooSlow": "Raise the target, or use a faster GPU or model.",
    "Neighbours": "See how the engine predicts the time of steps: docs/algebra.md, Latency targets.",
    "Blocks": "Raise spec.reserved, or spec.limit if the limit is in use, because requests wait for blocks.",
    "Seats": "Raise spec.seats, because requests wait for a seat.",
    "Missed": "The engine is newer than this plugin, so see the message.",
    "FieldsNotEnforced": "The fields that the message names have no effect in this version; remove them, or ignore "
    "this.",
}

_OF_STORAGES = {
    "Invalid": "Correct the field that the message names: kubectl edit {kind} {name}",
    "Deleting": "Wait, or find out why the objects that the message names are not ready: kubectl get kvs,kvg",
    "ManagerRefused": "Correct what the message names: kubectl edit {kind} {name}",
    "ManagerUnreachable": (
        "Check that the KV-cache manager runs, and that the operator reaches it at its --manager-url. The settings "
        "sent before stay in effect."
    ),
    "NotHeld": "See in the message why the operator's write is refused, for example by a webhook.",
    "StorageNotFound": (
        "Create the KVStorage that the message names, or remove it from the group: kubectl edit {kind} {name}"
    ),
    "Unhealthy": "Check the storage that the message names. Meanwhile, requests are served and other storages are "
    "used.",
    "NotRegistered": "Wait, or see why the condition Registered is not true.",
    "PoolsUnresolved": "Create the objects that the message names, or remove them from the group.",
    "NoStorage": "Create a KVStorage, or enable one: kubectl tenantzone storage.",
}
"""Advice for conditions of KVStorages and KVCacheGroups, by reason."""

_NOTHING_TO_DO = frozenset(
    {"Accepted", "AcceptedProvisionally", "Acknowledged", "Enforced", "Met", "NotAccepted", "Purged"}
    | {"Registered", "Healthy", "Resolved", "Ready", "Disabled", "NoPools"}
)
"""Reasons that need no advice. For NotAccepted, the advice is with the condition that contains the cause."""


def advice(condition: Condition, zone: Zone) -> str | None:
    """Returns advice on a zone's condition; None if there is nothing to do, or if the reason is unknown."""
    text = _REASONS.get(condition.reason)
    return text.format(zone=zone.name, namespace=zone.namespace, pool=zone.pool) if text else None


def storage_advice(reason: str, kind: str, name: str) -> str | None:
    """Returns advice on a condition of a KVStorage or KVCacheGroup; None if there is none for the reason.

    Args:
        reason: the reason of a condition whose status is not True.
        kind: the kind as an argument of kubectl, such as ``kvs``.
        name: the object's name.
    """
    text = _OF_STORAGES.get(reason)
    return text.format(kind=kind, name=name) if text else None


def is_known(reason: str) -> bool:
    """Returns whether this version of the plugin knows a condition's reason. Some known reasons need no advice."""
    return reason in _REASONS or reason in _OF_STORAGES or reason in _NOTHING_TO_DO
