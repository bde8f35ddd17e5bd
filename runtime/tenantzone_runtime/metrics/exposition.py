"""Encodes the metrics for a scrape, in the format that the client requests."""

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

from tenantzone_runtime.metrics.figures import EngineFigures
from tenantzone_runtime.metrics.protobuf import PROTOBUF_TYPE, protobuf
from tenantzone_runtime.metrics.text import OPENMETRICS_TYPE, TEXT_TYPE, openmetrics, text
from tenantzone_runtime.metrics_levels import Level

_FORMATS: Final = {"application/openmetrics-text": OPENMETRICS_TYPE, "text/plain": TEXT_TYPE}
_PROTOBUF_MEDIA_TYPE: Final = "application/vnd.google.protobuf"
_PROTOBUF_PARAMETERS: Final = {"proto": "io.prometheus.client.metricfamily", "encoding": "delimited"}

_AT_ONCE: Final = 250
"""Number of lines or messages to encode between two pauses. Encoding them takes some tenths of a millisecond."""
_PAUSE_SECONDS: Final = 0.0002


def encode(figures: EngineFigures, accept: str, level: Level) -> tuple[str, bytes]:
    """Encode the figures in the format that the ``Accept`` header prefers. Returns the content type and the body.

    The encoding pauses often, so that the engine's steps never wait long for the GIL.
    """
    content_type = choose(accept)
    if content_type == PROTOBUF_TYPE:
        return content_type, b"".join(_unhurried(protobuf(figures, level)))
    lines = openmetrics(figures, level) if content_type == OPENMETRICS_TYPE else text(figures, level)
    return content_type, "".join(_unhurried(lines)).encode()


def choose(accept: str) -> str:
    """Returns the content type that an ``Accept`` header prefers; Prometheus' text format if no listed type is known.

    If several types have the same weight, the first type is chosen.
    """
    best, weight = TEXT_TYPE, 0.0
    for item in accept.split(","):
        media_type, _, rest = item.partition(";")
        parameters = dict(_parameter(text) for text in rest.split(";"))
        content_type = _FORMATS.get(media_type.strip().lower())
        if media_type.strip().lower() == _PROTOBUF_MEDIA_TYPE and parameters.items() >= _PROTOBUF_PARAMETERS.items():
            content_type = PROTOBUF_TYPE
        if content_type is not None and _weight(parameters.get("q", "1")) > weight:
            best, weight = content_type, _weight(parameters.get("q", "1"))
    return best


def _parameter(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip().lower(), value.strip().strip('"').lower()


def _weight(quality: str) -> float:
    try:
        return float(quality)
    except ValueError:
        return 0.0


Part = TypeVar("Part", str, bytes)


def _unhurried(parts: Iterable[Part]) -> Iterator[Part]:
    left = iter(parts)
    while batch := list(islice(left, _AT_ONCE)):
        yield from batch
        time.sleep(_PAUSE_SECONDS)
