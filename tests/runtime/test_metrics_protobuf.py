"""The protobuf format, read back with Google's own runtime by the published schema's field numbers."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal.decoder import _DecodeVarint32  # The delimiter of messages has no public reader.

from tenantzone_runtime.metrics.protobuf import PROTOBUF_TYPE, protobuf
from tenantzone_runtime.zones.model.counters import Counters
from tenantzone_runtime.zones.model.histogram import Histogram
from tests.runtime.scraping import figures, get, scraped, series, zone

PACKAGE = "io.prometheus.client"
"""The used parts of its metrics.proto: message → field → number and type."""
SCHEMA = {
    "LabelPair": {"name": (1, "string"), "value": (2, "string")},
    "Value": {"value": (1, "double")},
    "Bucket": {"cumulative_count": (1, "uint64"), "upper_bound": (2, "double")},
    "BucketSpan": {"offset": (1, "sint32"), "length": (2, "uint32")},
    "Histogram": {
        "sample_count": (1, "uint64"),
        "sample_sum": (2, "double"),
        "bucket": (3, "*Bucket"),
        "schema": (5, "sint32"),
        "zero_threshold": (6, "double"),
        "zero_count": (7, "uint64"),
        "positive_span": (12, "*BucketSpan"),
        "positive_delta": (13, "*sint64"),
    },
    "Summary": {"sample_count": (1, "uint64"), "sample_sum": (2, "double")},
    "Metric": {
        "label": (1, "*LabelPair"),
        "gauge": (2, "Value"),
        "counter": (3, "Value"),
        "summary": (4, "Summary"),
        "histogram": (7, "Histogram"),
    },
    "MetricFamily": {"name": (1, "string"), "help": (2, "string"), "type": (3, "int32"), "metric": (4, "*Metric")},
}


def schema_class(message):
    described = descriptor_pb2.FileDescriptorProto(name="metrics.proto", package=PACKAGE, syntax="proto2")
    for name, fields in SCHEMA.items():
        made = described.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            one = made.field.add(name=field, number=number, label=3 if kind.startswith("*") else 1)
            kind = kind.removeprefix("*")
            if kind in SCHEMA:
                one.type, one.type_name = one.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
            else:
                one.type = getattr(one, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(described)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{message}"))


MetricFamily = schema_class("MetricFamily")


def decoded(body):
    families, position = {}, 0
    while position < len(body):
        length, position = _DecodeVarint32(body, position)
        family = MetricFamily.FromString(body[position : position + length])
        families[family.name] = family
        position += length
    return families


def histogram_of(*seconds):
    counters = Counters()
    for each in seconds:
        counters.queue_time.observe(each)
    body = b"".join(protobuf(figures(zones=(zone(counters=counters),)), "full"))
    return decoded(body)["tenantzone_zone_queue_time_seconds"].metric[0].histogram


def native_counts(histogram):
    """Index → count, as the schema defines spans and deltas."""
    counts, index, count, deltas = {}, 0, 0, iter(histogram.positive_delta)
    for span in histogram.positive_span:
        index += span.offset
        for _ in range(span.length):
            count += next(deltas)
            counts[index] = count
            index += 1
    return counts


def labels_of(metric):
    return frozenset((label.name, label.value) for label in metric.label)


def test_it_has_what_the_text_format_has():
    with scraped() as url:
        status, content_type, body = get(f"{url}/metrics", Accept=PROTOBUF_TYPE)
        text = series(get(f"{url}/metrics")[2].decode())
    assert (status, content_type) == (200, PROTOBUF_TYPE)
    reported = {}
    for name, family in decoded(body).items():
        for metric in family.metric:
            labels = labels_of(metric)
            if family.type == 4:
                for bucket in metric.histogram.bucket:
                    bound = "+Inf" if bucket.upper_bound == float("inf") else str(bucket.upper_bound)
                    reported[f"{name}_bucket", labels | {("le", bound)}] = bucket.cumulative_count
                reported[f"{name}_count", labels] = metric.histogram.sample_count
                reported[f"{name}_sum", labels] = metric.histogram.sample_sum
            elif family.type == 2:
                reported[f"{name}_count", labels] = metric.summary.sample_count
                reported[f"{name}_sum", labels] = metric.summary.sample_sum
            else:
                reported[name, labels] = (metric.counter if family.type == 0 else metric.gauge).value
    assert reported == text


def test_native_buckets_are_those_of_the_histogram():
    seconds = (0.0, 0.001, 0.03, 0.03, 0.031, 0.7, 0.75, 5000.0)
    expected = Histogram()
    for each in seconds:
        expected.observe(each)
    reported = histogram_of(*seconds)
    assert (reported.schema, reported.zero_threshold, reported.zero_count) == (3, 2.0**-20, 1)
    assert native_counts(reported) == expected.native
    assert len(reported.positive_span) == 4


def test_an_empty_histogram_is_a_native_one_too():
    reported = histogram_of()
    assert reported.HasField("zero_threshold")
    assert (reported.sample_count, native_counts(reported)) == (0, {})


def test_long_messages_and_large_numbers_keep_their_size():
    many = tuple(zone(name=f"zone-{number}", cached=2**40 + number) for number in range(300))
    families = decoded(b"".join(protobuf(figures(zones=many), "basic")))
    cached = families["tenantzone_zone_blocks_cached"].metric
    assert [metric.gauge.value for metric in cached] == [2**40 + number for number in range(300)]
    refused = decoded(b"".join(protobuf(figures(refusals={"unbound": 2**40}), "basic")))
    assert refused["tenantzone_engine_refused_requests_total"].metric[0].counter.value == 2**40
