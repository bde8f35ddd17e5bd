"""Encodes a scrape in the protobuf format, in which Prometheus (2.40 and later) accepts native histograms.

For each metric, a scrape has a message ``io.prometheus.client.MetricFamily``, preceded by the message's length. The
field numbers are from https://github.com/prometheus/client_model (``io/prometheus/client/metrics.proto``). The encoding
is described at https://protobuf.dev/programming-guides/encoding/.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Final

from tenantzone_runtime.metrics.families import families
from tenantzone_runtime.metrics.family import Family
from tenantzone_runtime.metrics.figures import EngineFigures
from tenantzone_runtime.metrics_levels import Level
from tenantzone_runtime.zones.model.histogram import BOUNDS, SCHEMA, ZERO_THRESHOLD, Histogram

PROTOBUF_TYPE: Final = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"

_TYPES: Final = {"counter": 0, "gauge": 1, "summary": 2, "histogram": 4, "info": 1}
"""Values of the enum ``MetricType``. The enum has no info type, so an info metric is encoded as a gauge."""
_VALUE_FIELDS: Final = {"counter": 3, "gauge": 2, "info": 2}
"""The field of the message ``Metric`` that contains the value, as a field number by the metric's type."""

_VARINT, _FIXED64, _BYTES = 0, 1, 2


def protobuf(figures: EngineFigures, level: Level) -> Iterator[bytes]:
    """Returns the bytes of a scrape in the protobuf format, in parts."""
    for family in families(level):
        metrics = [_bytes(4, _metric(family, labels, value)) for labels, value in family.samples(figures)]
        head = _text(1, family.name) + _text(2, family.help) + _number(3, _TYPES[family.type])
        yield _varint(len(head) + sum(map(len, metrics))) + head
        yield from metrics


def _metric(family: Family, values: tuple[str, ...], value: float | Histogram) -> bytes:
    labels = b"".join(map(_label, family.labels, values))
    if isinstance(value, Histogram):
        if family.type == "summary":
            return labels + _bytes(4, _number(1, value.count) + _double(2, value.sum))
        return labels + _bytes(7, _histogram(value))
    return labels + _bytes(_VALUE_FIELDS[family.type], _double(1, value))


@lru_cache(maxsize=4096)
def _label(name: str, value: str) -> bytes:
    return _bytes(1, _text(1, name) + _text(2, value))


def _histogram(histogram: Histogram) -> bytes:
    bounds = (*BOUNDS, float("inf"))
    return b"".join(
        [
            _number(1, histogram.count),
            _double(2, histogram.sum),
            *(
                _bytes(3, _number(1, count) + _double(2, bound))
                for bound, count in zip(bounds, accumulate(histogram.classic), strict=True)
            ),
            _number(5, _zigzag(SCHEMA)),
            # This field marks the histogram as native, even if the histogram is empty.
            _double(6, ZERO_THRESHOLD),
            _number(7, histogram.zeros),
            *_native_buckets(histogram),
        ]
    )


def _native_buckets(histogram: Histogram) -> Iterator[bytes]:
    """Returns the native buckets of a histogram, as spans and as deltas of the counts.

    Adjacent buckets form a span. A span has its length and its offset from the end of the previous span. Each bucket's
    count is encoded as the difference to the previous bucket's count.
    """
    spans: list[list[int]] = []
    deltas: list[int] = []
    follows: int | None = None
    before = 0
    for index, count in sorted(histogram.native.items()):
        if index != follows:
            spans.append([index if follows is None else index - follows, 0])
        spans[-1][1] += 1
        deltas.append(count - before)
        follows, before = index + 1, count
    for offset, length in spans:
        yield _bytes(12, _number(1, _zigzag(offset)) + _number(2, length))
    for delta in deltas:
        yield _number(13, _zigzag(delta))


def _number(field: int, number: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(number)


def _double(field: int, number: float) -> bytes:
    return _varint(field << 3 | _FIXED64) + struct.pack("<d", number)


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode())


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    if number < 0x80:
        return _ONE_BYTE[number]
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _zigzag(number: int) -> int:
    """Returns the ZigZag encoding of a signed number: an unsigned number, small if the signed number is near 0."""
    return number << 1 if number >= 0 else (-number << 1) - 1


_ONE_BYTE: Final = tuple(bytes([number]) for number in range(0x80))
