"""Orders and reports of migrations: reading returns what was written, and too much is refused."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.cache.migration import (
    MAX_BLOCKS,
    MigrationOrder,
    MigrationReport,
    parse_migration,
    parse_order,
)

HASHES = st.lists(st.binary(min_size=1, max_size=64), min_size=1, max_size=4).map(tuple)
PROMPTS = st.lists(HASHES, max_size=4).map(tuple)


@given(PROMPTS, st.floats(1.0, 1e15))
def test_an_order_is_read_as_it_was_written(prompts, rate):
    order = MigrationOrder(order="warm-up", tenant="acme", bytes_per_second=rate, prompts=prompts)
    assert parse_order(order.model_dump_json(by_alias=True).encode()) == order


@given(PROMPTS)
def test_a_report_is_read_as_it_was_written(prompts):
    report = MigrationReport(tenant="acme", chunk_bytes=8, chunk_tokens=2, prompts=prompts)
    assert parse_migration(report.model_dump_json(by_alias=True).encode()) == report


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "Invalid JSON: EOF"),
        (b"[]", "Input should be an object"),
        (b'{"order": "hand-down"}', "tenant: Field required"),
        (b'{"order": "leap", "tenant": "acme"}', "order: Input should be 'look', 'hand-down', 'warm-up' or 'stop'"),
        (b'{"order": "hand-down", "tenant": ""}', "tenant: String should have at least 1 character"),
        (b'{"order": "hand-down", "tenant": "\\ud800"}', "Invalid JSON: unexpected end of hex escape"),
        (b'{"order": "stop", "tenant": "acme", "bytesPerSecond": 0}', "bytesPerSecond: Input should be greater than 0"),
        (b'{"order": "stop", "tenant": "acme", "bytesPerSecond": "NaN"}', "bytesPerSecond: Input should be"),
        (b'{"order": "warm-up", "tenant": "acme", "prompts": [["?"]]}', "prompts[0][0]: Data should be valid base64"),
        (b'{"order": "warm-up", "tenant": "acme", "prompts": [[]]}', "prompts[0]: Tuple should have at least 1 item"),
    ],
)
def test_what_is_no_order_is_refused_in_a_line(text, words):
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        parse_order(text)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        ([["YQ==", *[""] * 1000]], "prompts[0][1]: Data should have at least 1 byte"),
        ([["YQ=="], *[[]] * 1000], "prompts[1]: Tuple should have at least 1 item after validation, not 0"),
    ],
)
def test_of_many_things_that_are_wrong_the_first_is_looked_for(prompts, words):
    text = json.dumps({"order": "warm-up", "tenant": "acme", "prompts": prompts})
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        parse_order(text.encode())


def test_a_number_that_can_not_be_added_up_is_refused():
    report = MigrationReport(tenant="acme", chunk_bytes=8, chunk_tokens=2).model_dump_json(by_alias=True)
    with pytest.raises(ValueError, match="chunkBytes"):
        parse_migration(report.replace('"chunkBytes":8', f'"chunkBytes":{10**309}').encode())


def test_an_order_names_a_bounded_number_of_blocks():
    prompts = ((b"x",) * MAX_BLOCKS,)
    order = MigrationOrder(order="warm-up", tenant="acme", prompts=prompts)
    assert parse_order(order.model_dump_json().encode()).prompts == prompts
    order = MigrationOrder(order="warm-up", tenant="acme", prompts=(*prompts, (b"y",)))
    with pytest.raises(ValueError, match="at most 65,536 blocks"):
        parse_order(order.model_dump_json().encode())
