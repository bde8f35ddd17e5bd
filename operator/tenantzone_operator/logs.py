"""The operator's log lines: as kopf writes them, or as JSON like the engines'."""

import logging
from collections.abc import Mapping

import kopf

from tenantzone_contract.logs import JsonFormatter

_NAMES = {"TenantZone": "zone", "ZonePool": "pool", "Pod": "pod"}


class KopfJsonFormatter(JsonFormatter):
    """kopf puts onto its own lines the object that they are about."""

    def fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        found = dict(super().fields(record))
        about = getattr(record, "k8s_ref", None)
        if about and about["kind"] in _NAMES:
            found |= {_NAMES[about["kind"]]: about["name"], "pool_namespace": about["namespace"]}
        return found


def configure_logging(log_format: str) -> None:
    """Set up the root logger.

    Args:
        log_format: ``json``, or anything else for text.
    """
    kopf.configure(log_format=kopf.LogFormat.FULL)
    if log_format == "json":
        for handler in logging.getLogger().handlers:
            handler.setFormatter(KopfJsonFormatter())
    # What these have to say is about themselves; warnings and errors stay.
    for name in ("kopf", "aiohttp.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
