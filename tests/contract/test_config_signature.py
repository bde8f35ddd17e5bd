"""What the signature of a config covers, and an engine's report of an invalid one."""

from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.keys.admin_token import admin_token
from tenantzone_contract.zone_config.config_signature import (
    MAX_SIGNATURE_BYTES,
    SignatureError,
    sign_config,
    verify_config,
)

NEW, OLD, OTHER = (admin_token(letter * 32, "shop", "demo") for letter in (b"n", b"o", b"x"))
CREATED = "2026-01-01T00:00:00Z"
FILES = {"config.json": b"{}", "config.jsonl.gz": b"packed"}
SIGNED = sign_config(FILES, [NEW, OLD], CREATED)

TOKENS = st.text("abcXYZ019-_", min_size=32, max_size=40)
CONTENTS = st.dictionaries(st.text("abc.", max_size=3), st.binary(max_size=6), max_size=3)


def verified(*tokens: str, files: Mapping[str, bytes] = FILES, signature: bytes | None = SIGNED) -> str:
    return verify_config(files, signature, [token.encode() for token in tokens])


@given(CONTENTS, st.lists(TOKENS, min_size=1, max_size=3, unique=True), st.datetimes(), st.data())
def test_an_engine_with_one_of_the_operators_tokens_takes_what_it_signed(files, tokens, created, data):
    created = f"{created.replace(microsecond=0).isoformat()}Z"
    signature = sign_config(files, tokens, created)
    one = data.draw(st.sampled_from(tokens))
    assert verify_config(files, signature, [OTHER.encode(), one.encode()]) == created
    assert len(signature) <= MAX_SIGNATURE_BYTES


@given(CONTENTS, CONTENTS)
def test_no_other_files_have_the_same_signature(one: dict[str, bytes], other: dict[str, bytes]):
    assert (sign_config(one, [NEW], CREATED) == sign_config(other, [NEW], CREATED)) == (one == other)


def test_a_signature_does_not_depend_on_the_order_of_files():
    assert sign_config(dict(reversed(FILES.items())), [NEW, OLD], CREATED) == SIGNED


@pytest.mark.parametrize(
    ("one", "other"),
    list(pairwise([{"ab": b"c"}, {"a": b"bc"}, {"a": b"b", "c": b""}, {"a": b"", "b": b"c"}, {"": b"abc"}])),
)
def test_names_and_contents_are_distinguished(one: dict[str, bytes], other: dict[str, bytes]):
    assert sign_config(one, [NEW], CREATED) != sign_config(other, [NEW], CREATED)


def test_it_has_a_line_for_each_key():
    version, created, *digests = SIGNED.decode().splitlines()
    assert (version, created, len(digests)) == ("tenantzone-config-signature/1", CREATED, 2)


@pytest.mark.parametrize("tokens", [(NEW,), (OLD,), (OTHER, OLD), (NEW, OTHER)])
def test_while_keys_are_changed_either_token_is_good(tokens: tuple[str, ...]):
    assert verified(*tokens) == CREATED


def test_a_token_of_another_pool_or_operator_is_refused():
    with pytest.raises(SignatureError, match="by none of the admin tokens"):
        verified(OTHER, admin_token(b"n" * 32, "shop", "other"))


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        pytest.param(None, "it has no signature", id="none"),
        pytest.param(b"", "of no form", id="empty"),
        pytest.param(b"\n\n\n", "of no form", id="empty lines"),
        pytest.param(SIGNED + b"\n" * 200, "of no form", id="too long"),
        pytest.param(SIGNED.replace(b"/1", b"/2", 1), "of no form", id="a newer version"),
        pytest.param(SIGNED.splitlines()[0], "is damaged", id="a version alone"),
        pytest.param(b"\n".join(SIGNED.splitlines()[:2]), "is damaged", id="no digest"),
        pytest.param(SIGNED + 2 * (64 * b"0" + b"\n"), "of no form", id="four digests"),
        pytest.param(SIGNED[:-2], "is damaged", id="cut off"),
        pytest.param(
            SIGNED.upper().replace(b"TENANTZONE-CONFIG-SIGNATURE", b"tenantzone-config-signature"),
            "is damaged",
            id="upper case",
        ),
        pytest.param(SIGNED.replace(b"2026", b"yyyy"), "is damaged", id="no time"),
        pytest.param(SIGNED.replace(b"2026", b"2027"), "by none of the admin tokens", id="another pool of the name"),
    ],
)
def test_a_signature_that_does_not_hold_is_refused_with_what_to_do(signature: bytes | None, message: str):
    with pytest.raises(SignatureError, match=message):
        verified(NEW, OLD, signature=signature)


@pytest.mark.parametrize(
    "files",
    [
        {"config.json": b"{ }", "config.jsonl.gz": b"packed"},
        {"config.json": b"{}", "config.jsonl.gz": b"Packed"},
        {"config.json": b"{}"},
        {},
        {**FILES, "config.more": b""},
    ],
)
def test_a_signature_covers_each_byte_of_each_file(files: dict[str, bytes]):
    with pytest.raises(SignatureError, match="by none of the admin tokens"):
        verified(NEW, OLD, files=files)


def test_without_a_token_nothing_is_verified():
    with pytest.raises(SignatureError, match="mount the pool's Secret tenantzone-admin-POOL"):
        verified()


@given(st.binary(max_size=300))
def test_no_bytes_are_a_signature_by_chance(signature: bytes):
    with pytest.raises(SignatureError):
        verified(NEW, signature=signature)
