"""The format of a snapshot in its ConfigMap: what is read was stored, in either version, and damage is named."""

import gzip
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.zone_config import packing
from tenantzone_contract.zone_config.config import ConfigError, PoolConfig, RuntimeConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config
from tenantzone_contract.zone_config.packing import (
    MAX_CONFIG_MAP_BYTES,
    MAX_PLAIN_BYTES,
    ConfigFiles,
    config_map_data,
    files_of,
    pack_config,
    unpack_config,
)

POOL = PoolConfig(namespace="models", name="main")


def snapshot(zones: int) -> RuntimeConfig:
    made = (ZoneConfig(name=f"zone-{n:05}", tenant=f"tenant-{n:05}", generation=1, reserved=n) for n in range(zones))
    return make_config(7, POOL, tuple(made))


LARGE = snapshot(3_000)
PACKED = pack_config(LARGE)


def test_a_small_config_is_plain_text_of_version_1():
    files = pack_config(snapshot(2_000))

    assert files.packed is None
    assert files.text == dump_config(snapshot(2_000))
    assert json.loads(files.text)["schemaVersion"] == 1


def test_a_large_config_is_compressed_and_says_so_in_version_2():
    head = json.loads(PACKED.text)

    assert head == {
        "schemaVersion": 2,
        "generation": LARGE.generation,
        "hash": LARGE.hash,
        "content": "config.jsonl.gz",
    }
    assert PACKED.packed is not None
    pool, *zones = map(json.loads, gzip.decompress(PACKED.packed).splitlines())
    assert {"pool": pool, "zones": zones}.items() <= json.loads(dump_config(LARGE)).items()
    assert unpack_config(PACKED) == LARGE


def test_twenty_thousand_zones_fit_into_one_config_map():
    files = pack_config(snapshot(20_000))

    assert files.size < MAX_CONFIG_MAP_BYTES
    assert len(unpack_config(files).zones) == 20_000


def test_the_same_snapshot_is_always_the_same_files():
    assert pack_config(LARGE) == PACKED


@given(st.integers(0, 30), st.integers(0, 4_000))
def test_what_is_stored_is_what_is_read(zones: int, max_plain_bytes: int):
    config = snapshot(zones)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "MAX_PLAIN_BYTES", max_plain_bytes)
        files = pack_config(config)
        body = {"metadata": {}, **config_map_data(files)}

    assert (files.packed is None) == (len(dump_config(config)) <= max_plain_bytes)
    assert files_of(json.loads(json.dumps(body))) == files
    assert unpack_config(files) == config


def test_a_config_map_without_a_config_is_an_empty_one():
    assert files_of({"metadata": {}}) == ConfigFiles("")
    with pytest.raises(ConfigError, match="the config is empty"):
        unpack_config(ConfigFiles(""))


def test_its_size_is_what_the_api_server_counts():
    body = config_map_data(PACKED)

    assert PACKED.packed is not None
    assert PACKED.size == len(body["data"]["config.json"]) + len(PACKED.packed)


def _other(zones: int) -> bytes:
    packed = pack_config(snapshot(zones)).packed
    assert packed is not None
    return packed


def _lines(zones: int) -> bytes:
    """The lines that all zones share, and those of `zones` zones."""
    return b"\n".join([POOL.text.encode(), *map(_line, range(zones))])


def _line(number: int) -> bytes:
    return LARGE.zones[number].text.encode()


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        pytest.param(lambda packed: None, "config.jsonl.gz is missing", id="missing"),
        pytest.param(lambda packed: b"", "cut off", id="empty"),
        pytest.param(lambda packed: packed[:-1], "cut off", id="cut off"),
        pytest.param(lambda packed: b"{}", "not gzip's format, or damaged", id="plain"),
        pytest.param(lambda packed: packed[:500] + b"\0" * 50 + packed[550:], "damaged", id="overwritten"),
        pytest.param(lambda packed: _other(3_001), "hash: the content has", id="of another snapshot"),
        pytest.param(lambda packed: gzip.compress(b"\xff"), "not text", id="no text"),
        pytest.param(lambda packed: gzip.compress(b""), "not valid JSON", id="nothing in it"),
        pytest.param(lambda packed: gzip.compress(b"[]"), "pool: ", id="no pool"),
        pytest.param(lambda packed: gzip.compress(_lines(0) + b"\n{}"), r"zones\[0\].name: ", id="no zone"),
        pytest.param(lambda packed: gzip.compress(_lines(9) + b"\n{"), "a line is not valid JSON", id="half a zone"),
        pytest.param(lambda packed: gzip.compress(_lines(9) + b"\n"), "a line is not valid JSON", id="an empty line"),
        pytest.param(lambda packed: gzip.compress(_lines(2_999)), "hash: the content has", id="a zone less"),
        pytest.param(lambda packed: gzip.compress(b"\n".join([b"{}", *2 * [_line(1)]])), "pool", id="twice"),
        pytest.param(lambda packed: gzip.compress(b" " * 2**25), "a line is longer than 2,097,152", id="a bomb"),
        pytest.param(lambda packed: gzip.compress(b"\n" * 2**22), "not valid JSON", id="a bomb of lines"),
    ],
)
def test_damage_to_the_compressed_content_is_named(damage: Callable[[bytes], bytes | None], error: str):
    assert PACKED.packed is not None
    with pytest.raises(ConfigError, match=error):
        unpack_config(replace(PACKED, packed=damage(PACKED.packed)))


@given(st.dictionaries(st.integers(0, len(PACKED.packed or b"") - 1), st.integers(0, 255), min_size=1, max_size=4))
def test_whatever_the_bytes_they_are_read_or_refused(bytes_at: dict[int, int]):
    assert PACKED.packed is not None
    damaged = bytearray(PACKED.packed)
    for place, byte in bytes_at.items():
        damaged[place] = byte
    with suppress(ConfigError):
        assert unpack_config(replace(PACKED, packed=bytes(damaged))) == LARGE


@pytest.mark.parametrize(
    ("field", "value"), [("content", "../secret"), ("generation", 0), ("hash", 7), ("more", 1)], ids=str
)
def test_a_bad_head_is_named(field: str, value: object):
    head = json.loads(PACKED.text) | {field: value}

    with pytest.raises(ConfigError, match=field):
        unpack_config(replace(PACKED, text=json.dumps(head)))


def test_what_lies_next_to_plain_text_does_not_matter():
    config = snapshot(3)

    assert unpack_config(ConfigFiles(dump_config(config), b"left over")) == config


def test_a_config_that_no_engine_would_read_is_not_made(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packing, "MAX_TEXT_BYTES", MAX_PLAIN_BYTES)

    with pytest.raises(ConfigError, match="use more pools"):
        pack_config(LARGE)
    with pytest.raises(ConfigError, match="the content is longer than 900,000 bytes"):
        unpack_config(PACKED)


def test_a_copy_of_a_zone_that_is_changed_has_its_own_text():
    zone = LARGE.zones[0]
    before = zone.text

    changed = zone.model_copy(update={"reserved": 99})

    assert json.loads(changed.text)["reserved"] == 99
    assert zone.text == before


def _levels(number: int) -> bytes:
    return json.dumps({"namespace": "n", "name": "n", "unknownTenants": {"levels": [{}] * number}}).encode()


def _tenants(number: int) -> bytes:
    level = {"name": "gold", "tenants": [f"t{n}" for n in range(number)]}
    return json.dumps({"namespace": "n", "name": "n", "unknownTenants": {"levels": [level]}}).encode()


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        pytest.param([_levels(65)], "levels", id="many levels"),
        pytest.param([_levels(500_000)], "levels", id="very many levels"),
        pytest.param([_tenants(65)], "tenants: ", id="many tenants"),
        pytest.param([json.dumps({f"x{n}": n for n in range(101)}).encode()], "101 members", id="many fields"),
        pytest.param([b" " * (3 * 2**20)], "a line is longer", id="a long line"),
        pytest.param([POOL.text.encode(), b"[" * 100_000], None, id="deep"),
        pytest.param([_lines(2), b'"' + b"x" * 2_500_000], "a line is longer", id="a long zone"),
    ],
)
def test_what_would_cost_its_reader_much_is_refused_soon(lines: list[bytes], error: str | None):
    content = gzip.compress(b"\n".join(lines))

    with pytest.raises((ConfigError, RecursionError), match=error) as raised:
        unpack_config(replace(PACKED, packed=content))
    assert len(str(raised.value)) < 1_000


def test_more_zones_than_anybody_has_in_memory_are_neither_written_nor_read(monkeypatch: pytest.MonkeyPatch):
    for module in ("config_text", "config"):
        monkeypatch.setattr(f"tenantzone_contract.zone_config.{module}.MAX_ZONES", 2_999)

    with pytest.raises(ConfigError, match="use more pools"):
        pack_config(LARGE)
    with pytest.raises(ConfigError, match="use more pools"):
        unpack_config(PACKED)
    with pytest.raises(ConfigError, match="use more pools"):
        unpack_config(ConfigFiles(dump_config(LARGE)))
