"""The digest of an instance: any change in the meaning of a chunk's bytes changes it."""

import pytest
from pydantic import ValidationError

from tenantzone_contract.zone_config.instance import Instance

PARTS = {
    "zone": "acme",
    "model": "org/model",
    "weights_revision": "abc",
    "dtype": "bfloat16",
    "block_size": 16,
    "blocks_per_chunk": 4,
    "layout": "LBHNC",
    "tensor_parallel_size": 2,
    "tensor_parallel_rank": 0,
    "hash_algorithm": "sha256_cbor",
    "hash_seed": "0",
    "salt_key_id": "k1",
    "lora_digest": "",
    "engine_version": "vLLM 0.32.0",
}


def test_the_same_instance_has_the_same_digest_on_each_machine():
    assert Instance(**PARTS).digest == Instance(**dict(reversed(PARTS.items()))).digest
    assert Instance(**PARTS).digest == "6b7831761dafbb6a9b12841b10653c0a5fbab83fd79af1386ddb31ebc0cc3e58"


@pytest.mark.parametrize("part", Instance.model_fields)
def test_each_part_changes_the_digest(part):
    other = PARTS[part] + 1 if isinstance(PARTS[part], int) else PARTS[part] + "x"
    assert Instance(**PARTS | {part: other}).digest != Instance(**PARTS).digest


@pytest.mark.parametrize("part", Instance.model_fields)
def test_no_part_can_be_forgotten(part):
    with pytest.raises(ValidationError, match=part):
        Instance(**{name: value for name, value in PARTS.items() if name != part})


def test_parts_do_not_run_into_each_other():
    one = Instance(**PARTS | {"zone": "a", "model": "bc"})
    other = Instance(**PARTS | {"zone": "ab", "model": "c"})
    assert one.digest != other.digest
