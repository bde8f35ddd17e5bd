"""Orders and reports of migrations: what is written is read back, and what is too much is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.migration import (
    MAX_BLOCKS,
    MigrationOrder,
    MigrationReport,
    parse_migration,
    parse_order,
)

PROMPTS = st.lists(st.lists(st.binary(min_size=1, max_size=64), max_size=4).map(tuple), max_size=4).map(tuple)


@given(PROMPTS, st.floats(1.0, 1e15))
def test_an_order_is_read_as_it_was_written(prompts, rate):
    order = MigrationOrder(order="warm-up", tenant="acme", bytes_per_second=rate, prompts=prompts)
    assert parse_order(order.model_dump_json(by_alias=True).encode()) == order


@given(PROMPTS)
def test_a_report_is_read_as_it_was_written(prompts):
    report = MigrationReport(tenant="acme", chunk_bytes=8, chunk_tokens=2, prompts=prompts)
    assert parse_migration(report.model_dump_json(by_alias=True).encode()) == report


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"order": "hand-down"}',
        b'{"order": "leap", "tenant": "acme"}',
        b'{"order": "hand-down", "tenant": ""}',
        b'{"order": "hand-down", "tenant": "acme", "bytesPerSecond": 0}',
        b'{"order": "hand-down", "tenant": "acme", "bytesPerSecond": "NaN"}',
        b'{"order": "warm-up", "tenant": "acme", "prompts": [["?"]]}',
    ],
)
def test_what_is_no_order_is_refused(text):
    with pytest.raises(ValueError, match="validation error"):
        parse_order(text)


def test_an_order_names_so_many_blocks_and_no_more():
    prompts = ((b"x",) * MAX_BLOCKS,)
    order = MigrationOrder(order="warm-up", tenant="acme", prompts=prompts)
    assert parse_order(order.model_dump_json().encode()).prompts == prompts
    order = MigrationOrder(order="warm-up", tenant="acme", prompts=(*prompts, (b"y",)))
    with pytest.raises(ValueError, match="at most 65,536 blocks"):
        parse_order(order.model_dump_json().encode())
