"""Derives Events from status changes of KVStorages and KVCacheGroups, one Event for each change."""

from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.kube.conditions import Reason, Type
from tenantzone_operator.status.notices import Notable, Notice

_REFUSALS = (Reason.INVALID, Reason.MANAGER_REFUSED, Reason.STORAGE_NOT_FOUND)


def manager_notices(before: Body, after: Body) -> list[Notice]:
    """Returns the Events to record about a KVStorage or KVCacheGroup whose status has changed."""
    notices = []
    was, now = _condition(before, Type.REGISTERED), _condition(after, Type.REGISTERED)
    if now.get("reason") in _REFUSALS and now.get("message") != was.get("message"):
        notices.append(Notice(Notable.NOT_REGISTERED, "Register", "Warning", now["message"]))
    if now.get("status") == "True" and was.get("status") != "True":
        notices.append(Notice(Notable.REGISTERED, "Register", "Normal", now["message"]))
    was, now = _condition(before, Type.HEALTHY), _condition(after, Type.HEALTHY)
    if now.get("status") == "False" and was.get("status") != "False":
        notices.append(Notice(Notable.STORAGE_UNHEALTHY, "Try", "Warning", now["message"]))
    if now.get("status") == "True" and was.get("status") == "False":
        notices.append(Notice(Notable.STORAGE_HEALTHY, "Try", "Normal", now["message"]))
    return notices


def _condition(status: Body, kind: Type) -> Body:
    return next((found for found in status.get("conditions", []) if found["type"] == kind), {})
