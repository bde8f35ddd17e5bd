"""Configures the operator's logging: kopf's text format, or JSON with the same fields as the engines' logs."""

import logging
import time
from collections.abc import Mapping, MutableMapping
from typing import Any

import kopf

from tenantzone_contract.logs import JsonFormatter
from tenantzone_contract.text import printable

SAY_AGAIN_SECONDS = 600.0
"""Minimum number of seconds between two log lines with the same complaint."""

_NAMES = {"TenantZone": "zone", "ZonePool": "pool", "Pod": "pod"}


class About(logging.LoggerAdapter[logging.Logger]):
    """A logger that adds its fields to all lines, in addition to the fields in a call's ``extra``."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, {**kwargs, "extra": {**(self.extra or {}), **(kwargs.get("extra") or {})}}


class KopfJsonFormatter(JsonFormatter):
    """Writes lines as JSON, and adds the name and namespace of the object that kopf's own lines are about."""

    def fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        found = dict(super().fields(record))
        about = getattr(record, "k8s_ref", None)
        if about and about["kind"] in _NAMES:
            found |= {_NAMES[about["kind"]]: about["name"], "pool_namespace": about["namespace"]}
        return found


def _make_printable(record: logging.LogRecord) -> bool:
    """Replace a record's message by one printable line. The message may quote an engine, which must not forge lines.

    JSON needs no such filter, because it escapes the text.
    """
    record.msg, record.args = printable(record.getMessage()), ()
    return True


def configure_logging(log_format: str) -> None:
    """Set up the root logger for the operator.

    Args:
        log_format: ``json``, or any other value for plain text.
    """
    kopf.configure(log_format=kopf.LogFormat.FULL)
    for handler in logging.getLogger().handlers:
        if log_format == "json":
            handler.setFormatter(KopfJsonFormatter())
        else:
            handler.addFilter(_make_printable)
    # Only show warnings and errors from these loggers, because their other lines say little about the operator's work.
    for name in ("kopf", "aiohttp.access"):
        logging.getLogger(name).setLevel(logging.WARNING)


class Complaints:
    """Logs warnings about a recurring problem: a new complaint immediately, an unchanged one only periodically.

    Args:
        log: the logger to use.
        subject: the words before each complaint, for example the object's kind and name.
    """

    def __init__(self, log: logging.Logger | About, subject: str) -> None:
        self._log = log
        self._subject = subject
        self._said = ""
        self._said_at = float("-inf")

    def say(self, complaint: str) -> None:
        """Log a complaint, unless the same complaint was logged recently."""
        now = time.monotonic()
        if complaint != self._said or now - self._said_at >= SAY_AGAIN_SECONDS:
            self._said, self._said_at = complaint, now
            self._log.warning("%s: %s", self._subject, complaint)

    def forget(self) -> None:
        """Record that the problem is solved, so that the next complaint is logged immediately."""
        self._said = ""
