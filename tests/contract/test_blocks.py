"""The picture of the blocks in its wire format."""

import json

import pytest

from tenantzone_contract.cache.blocks import MAX_CELLS, BlockKind, BlockMap, parse_block_map

PICTURE = BlockMap(
    pod="engine-0",
    capacity_blocks=5,
    blocks_per_cell=2,
    kinds=(
        BlockKind(tenant="acme", zone="acme", use="cached", borrowed=True, blocks=3),
        BlockKind(use="free", blocks=2),
    ),
    runs=((0, 2), (1, 1)),
    taken_unix_time=1.0,
)


def test_it_survives_the_wire():
    assert parse_block_map(PICTURE.model_dump_json(by_alias=True)) == PICTURE


@pytest.mark.parametrize(
    ("field", "value"), [("takenUnixTime", "NaN"), ("takenUnixTime", "Infinity"), ("capacityBlocks", 10**309)]
)
def test_numbers_that_can_not_be_shown_are_refused(field, value):
    content = PICTURE.model_dump_json(by_alias=True)
    known = json.dumps(json.loads(content)[field])
    with pytest.raises(ValueError, match=field):
        parse_block_map(content.replace(f'"{field}":{known}', f'"{field}":{value}'))


def test_a_newer_engine_may_say_more():
    content = json.loads(PICTURE.model_dump_json(by_alias=True))
    content["kinds"][0]["future"] = content["future"] = True
    assert parse_block_map(json.dumps(content)) == PICTURE


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"capacityBlocks": -1},
        {"blocksPerCell": 0},
        {"runs": [[0, -1]]},
        {"runs": [[0, 1]] * (MAX_CELLS + 1)},
        {"runs": [[5, 1]]},
        {"runs": [[0, MAX_CELLS], [1, 1]]},
    ],
)
def test_what_is_no_picture_is_refused(change):
    content = json.loads(PICTURE.model_dump_json(by_alias=True)) | change
    with pytest.raises(ValueError, match="BlockMap"):
        parse_block_map(json.dumps(content))
