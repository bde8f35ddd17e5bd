"""Advice by condition reason: says how to fix a problem, while the condition's message describes it."""

from tenantzone_cli.resources import Condition, Zone

_REASONS = {
    "Invalid": "Correct the field that the message names: kubectl edit tz/{zone} -n {namespace}",
    "PoolNotFound": (
        "Create ZonePool {pool} in namespace {namespace}; if the name is wrong, create the zone anew, because "
        "spec.pool is immutable."
    ),
    "PoolInvalid": "Correct ZonePool {pool}: kubectl describe zp/{pool} -n {namespace}",
    "PoolNotServed": (
        "If the operator is to serve ZonePool {pool}, add {namespace}/{pool} to the value pools of its chart; else "
        "delete the pool and its zones, or leave them to another operator."
    ),
    "PoolOvercommitted": (
        "Lower what is reserved to what is left (see below), lower that of an older zone, or let the pool select "
        "larger engines. Zones that are accepted keep what they have."
    ),
    "TenantConflict": "Delete one of the two zones, or create this one anew with another spec.tenant.",
    "Deleting": "See whose finalizer holds it: kubectl get tz/{zone} -n {namespace} -o yaml",
    "Pending": (
        "Wait: kubelet takes a moment to project the config, and more than a minute if a pod can't be annotated. If it "
        "stays so: kubectl tenantzone doctor -n {namespace}"
    ),
    "ConfigTooLarge": "Spread the zones over more pools; the message says how large the config is.",
    "ConfigNotWritten": "See why the API server refuses the operator's write: kubectl tenantzone doctor -n {namespace}",
    "NoEngines": "Start an engine whose pod has the labels that ZonePool {pool} selects, or wait until one is ready.",
    "EnginesOfAnotherPool": (
        "Change spec.selector of one of the two pools, or create the zone anew in the older one: an engine has the "
        "config of one pool only, the oldest one that selects its pod."
    ),
    "PlaceNamedTwice": "Give each KVStorage that the message names a path or prefix of its own, or delete all but one.",
    "PodsSelectedTwice": "Change spec.selector of one of the pools that the message names.",
    "ConfigRejected": "The engine says why it refuses the config. If it does not know a field, upgrade the engine.",
    "ConfigUntrusted": (
        "Another user wrote the ConfigMap tenantzone-{pool}, or the engine and the operator have different keys, or "
        "the operator can't read its key. The operator replaces what others wrote within seconds; if this persists, do "
        "what the message says. Then see who may write ConfigMaps in namespace {namespace}."
    ),
    "EngineUnreachable": (
        "See whether the pod is healthy, and whether a NetworkPolicy and the pool's token let the operator reach its "
        "admin port: "
        "kubectl tenantzone doctor -n {namespace}"
    ),
    "ApiServerDiffers": (
        "See the pod's log: an API server process does not follow the engine core. If this persists, restart the pod."
    ),
    "EngineUnfit": (
        "If the message says that a limit is below what is reserved, change one of the two. Else the engine has too "
        "few blocks: start it with more memory for its cache, let ZonePool {pool} select others, or lower what zones "
        "reserve. The oldest zones have theirs."
    ),
    "ZoneMissing": "The engine has a config without this zone. If this persists, its log says more.",
    "ZoneDiffers": "The engine enforces something else than its config says. If this persists, restart it.",
    "IdentityIncomplete": "Add the proof that the message names to ZonePool {pool}; until then no request is served.",
    "IdentityUnusable": (
        "Mount what the message misses into the engine pods' folder of keys (/etc/tenantzone/keys) or of the identity "
        "(/etc/tenantzone/identity), or repair it."
    ),
    "SecretNotMade": (
        "Give the operator the right to create Secrets, or make the one that the message names yourself: see "
        "docs/salts.md and docs/operator.md."
    ),
    "SaltKeyRefused": "Put a good key into the Secret tenantzone-salt-{pool}, or delete it: then a new one is made.",
    "NoSaltKey": "Mount the Secret tenantzone-salt-{pool} into all engines; docs/salts.md says what it is for.",
    "SaltKeysDiffer": "Mount the same Secret, tenantzone-salt-{pool}, into all engines.",
    "TokenRefused": (
        "Mount the Secret tenantzone-admin-{pool} at /etc/tenantzone/admin. If it is mounted, it is of another key: "
        "delete it, and the operator makes it anew."
    ),
    "TokensBroken": "Look at the Secret tenantzone-admin-{pool}, or delete it: then a new one is made.",
    "AdminPortOpen": (
        "Mount the Secret tenantzone-admin-{pool} at /etc/tenantzone/admin, and start the engines without --admin-open."
    ),
    "PurgePending": "Wait, or see why the engines that the message names do not answer or refuse the config.",
    "PurgeInvalid": "Ask for the purge by kubectl tenantzone purge {zone} -n {namespace}, which makes an id.",
    "LittleLoaded": (
        "Set tiers[].admission of the zone to SeenTwice or Auto, so that only prefixes that come again are stored, or "
        "offload to Never (docs/tiers.md). A young engine, or one whose own blocks hold all, loads little, too."
    ),
    "TierMissing": (
        "Start the engine with the connector that tenantzone-runtime serve --show-flags prints (docs/tiers.md), or "
        "remove the tier from the spec."
    ),
    "TierTooSmall": (
        "Restart the engine with as much of the tier as ZonePool {pool} says, or lower what zones reserve there. The "
        "oldest zones have theirs."
    ),
    "TierFailing": (
        "Look at the disk that the message names: docs/runbooks/TenantZoneTierFailing.md. Requests are served all the "
        "same."
    ),
    "NoTraffic": "Nothing needs to be done, unless requests wait: none of the zone was served in the last minute.",
    "Warming": "Wait: the engine learns from its first steps how long steps take.",
    "OwnPrompts": "Raise the target, send shorter prompts or fewer at a time, or add engines to ZonePool {pool}.",
    "OwnLoad": "Lower spec.seats.limit, raise the target, or add engines to ZonePool {pool}.",
    "ModelTooSlow": "Raise the target, or use a faster GPU or model.",
    "Neighbours": "See what the engine predicts of steps: docs/algebra.md, Latency targets.",
    "Blocks": "Raise spec.reserved, or spec.limit if all of that is in use: requests wait for blocks.",
    "Seats": "Raise spec.seats: requests wait for a seat.",
    "Missed": "The engine is newer than this plugin; the message has its own words.",
    "FieldsNotEnforced": "The fields that the message names do nothing in this version; remove them, or live with it.",
}

_OF_STORAGES = {
    "Invalid": "Correct the field that the message names: kubectl edit {kind} {name}",
    "Deleting": "Wait, or see why what the message names does not come: kubectl get kvs,kvg",
    "ManagerRefused": "Correct what the message names: kubectl edit {kind} {name}",
    "ManagerUnreachable": (
        "See whether the KV-cache manager runs, and whether the operator reaches it at its --manager-url. What was "
        "sent before stays in effect."
    ),
    "NotHeld": "See who refuses the operator's write, such as a webhook; the message has its words.",
    "StorageNotFound": (
        "Create the KVStorage that the message names, or take it out of the group: kubectl edit {kind} {name}"
    ),
    "Unhealthy": "Look at the storage that the message names: requests are served, and other storages used, meanwhile.",
    "NotRegistered": "Wait, or see why the condition Registered is not true.",
    "PoolsUnresolved": "Create what the message names, or take it out of the group.",
    "NoStorage": "Create a KVStorage, or enable one: kubectl tenantzone storage.",
}
"""Advice for conditions of KVStorages and KVCacheGroups, by reason."""

_NOTHING_TO_DO = frozenset(
    {"Accepted", "AcceptedProvisionally", "Acknowledged", "Enforced", "Met", "NotAccepted", "Purged"}
    | {"Registered", "Healthy", "Resolved", "Ready", "Disabled", "NoPools"}
)
"""Reasons that need no advice. NotAccepted needs none because another condition has the cause."""


def advice(condition: Condition, zone: Zone) -> str | None:
    """Returns advice on how to fix a condition; None if there is nothing to do, or if the reason is unknown."""
    text = _REASONS.get(condition.reason)
    return text.format(zone=zone.name, namespace=zone.namespace, pool=zone.pool) if text else None


def storage_advice(reason: str, kind: str, name: str) -> str | None:
    """Returns advice on how to fix a condition of a KVStorage or KVCacheGroup; None if the reason is unknown.

    Args:
        reason: the reason of a condition whose status is not True.
        kind: the kind as a kubectl argument.
        name: the object's name.
    """
    text = _OF_STORAGES.get(reason)
    return text.format(kind=kind, name=name) if text else None


def is_known(reason: str) -> bool:
    """Returns whether this version of the plugin knows a condition's reason, with or without advice."""
    return reason in _REASONS or reason in _OF_STORAGES or reason in _NOTHING_TO_DO
