"""An engine that demands signatures: a config that the operator did not sign never takes effect."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tenantzone_contract.keys.admin_token import admin_token
from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_contract.zone_config.config_signature import SIGNATURE_KEY, sign_config
from tenantzone_contract.zone_config.config_text import dump_config
from tenantzone_runtime.reload import ConfigSource
from tests.runtime.folders import config, project, zone
from tests.runtime.watched import NOW, generation_of

NEW, OLD, THIEFS = (admin_token(letter * 32, "models", "main") for letter in (b"n", b"o", b"x"))
CREATED, CREATED_AGAIN = "2026-01-01T00:00:00Z", "2026-06-01T00:00:00Z"


@dataclass
class Tokens:
    """The active tokens, as the engine reads them from its folder."""

    names: list[str] = field(default_factory=lambda: [NEW])

    def __call__(self) -> tuple[bytes, ...]:
        return tuple(name.encode() for name in self.names)


def files(generation: int, *signed_with: str, created: str = CREATED, tenant: str = "acme") -> dict[str, bytes]:
    """The files of a config, signed with these tokens; with none of them, unsigned."""
    made = {"config.json": dump_config(config(generation, zone(tenant))).encode()}
    return made | ({SIGNATURE_KEY: sign_config(made, signed_with, created)} if signed_with else {})


@pytest.fixture
def tokens() -> Tokens:
    return Tokens()


@pytest.fixture
def watched(tmp_path: Path, tokens: Tokens) -> ConfigSource:
    """A source with the signed config 5 active."""
    project(tmp_path, files(5, NEW))
    made = ConfigSource(tmp_path, tokens=tokens, now=lambda: NOW)
    assert made.poll()
    assert generation_of(made) == 5
    assert made.rejection is None
    return made


def refusal(watched: ConfigSource) -> str:
    assert watched.rejection is not None
    assert watched.rejection.untrusted
    return watched.rejection.error


@pytest.mark.parametrize(
    ("forged", "error"),
    [
        pytest.param(files(6), "the config has no signature", id="no signature"),
        pytest.param(files(6, THIEFS), "matches none of the engine's admin tokens", id="a signature by another key"),
        pytest.param(files(5, NEW) | files(6), "matches none of", id="the signature of the one before"),
        pytest.param(
            {"config.json": b"{", SIGNATURE_KEY: b"x"},
            "has a format that this engine does not know",
            id="nothing that could be read",
        ),
        pytest.param(files(6, NEW) | {"config.jsonl.gz": b""}, "matches none of", id="a file more"),
        pytest.param(files(5, tenant="thief"), "the config has no signature", id="the same generation"),
    ],
)
def test_a_forged_config_is_refused_and_what_was_in_force_stays(
    tmp_path: Path, watched: ConfigSource, forged: dict[str, bytes], error: str
):
    in_force = watched.config
    project(tmp_path, forged)
    assert watched.poll()
    assert watched.config is in_force
    assert error in refusal(watched)
    assert not watched.poll(), "the same complaint is no news"
    project(tmp_path, files(7, NEW))
    assert watched.poll()
    assert generation_of(watched) == 7
    assert watched.rejection is None


def test_what_is_not_signed_is_not_parsed(tmp_path: Path, watched: ConfigSource, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> RuntimeConfig:
        raise AssertionError("it was parsed")

    monkeypatch.setattr("tenantzone_runtime.reload.unpack_config", fail)
    monkeypatch.setattr("tenantzone_runtime.reload.json.loads", fail)
    project(tmp_path, files(6, THIEFS))
    assert watched.poll()
    assert "matches none of the engine's admin tokens" in refusal(watched)


def test_a_first_config_that_is_not_signed_is_no_config(tmp_path: Path, tokens: Tokens):
    project(tmp_path, files(1))
    watched = ConfigSource(tmp_path, tokens=tokens)
    assert watched.poll()
    assert watched.config is None
    assert "the config has no signature" in refusal(watched)


def test_without_the_demand_signatures_are_not_looked_at(tmp_path: Path):
    watched = ConfigSource(tmp_path)
    for generation, made in enumerate([files(3), files(2, THIEFS), files(1) | {SIGNATURE_KEY: b"x"}]):
        project(tmp_path, made)
        assert watched.poll()
        assert (generation_of(watched), watched.rejection) == (3 - generation, None)


def test_a_token_that_comes_later_lets_the_same_file_in(tmp_path: Path, tokens: Tokens):
    tokens.names = []
    project(tmp_path, files(1, NEW))
    watched = ConfigSource(tmp_path, tokens=tokens)
    assert watched.poll()
    assert watched.config is None
    assert "the engine has no admin token" in refusal(watched)
    tokens.names = [NEW]
    assert watched.poll()
    assert (generation_of(watched), watched.rejection) == (1, None)
    assert not watched.poll()


def test_keys_are_changed_without_a_refusal(tmp_path: Path, tokens: Tokens):
    tokens.names = [OLD]
    watched = ConfigSource(tmp_path, tokens=tokens)
    rejections = []

    def look() -> None:
        watched.poll()
        rejections.append(watched.rejection)

    project(tmp_path, files(1, OLD))
    look()
    project(tmp_path, files(1, NEW, OLD))
    look()
    tokens.names = [NEW, OLD]
    look()
    project(tmp_path, files(2, NEW))
    look()
    tokens.names = [NEW]
    look()
    assert rejections == [None] * 5
    assert generation_of(watched) == 2


def test_after_a_change_of_all_tokens_the_config_in_force_stays_until_there_is_one_by_them(
    tmp_path: Path, tokens: Tokens, watched: ConfigSource
):
    tokens.names = [OLD]
    assert watched.poll()
    assert generation_of(watched) == 5
    assert "matches none of the engine's admin tokens" in refusal(watched)
    project(tmp_path, files(5, OLD))
    assert watched.poll()
    assert (generation_of(watched), watched.rejection) == (5, None)


def test_a_signature_that_comes_after_its_config_is_noticed(tmp_path: Path, tokens: Tokens):
    """In a plain folder, files are written one after another."""
    folder = tmp_path / "plain"
    folder.mkdir()
    watched = ConfigSource(folder, tokens=tokens)
    before, after = files(1, NEW), files(2, NEW)
    for second, (name, content) in enumerate([*before.items(), *after.items()]):
        (folder / name).write_bytes(content)
        os.utime(folder / name, (second, second))  # too old to be read again because of its age
        watched.poll()
    assert (generation_of(watched), watched.rejection) == (2, None)


def test_an_older_config_that_was_signed_once_is_refused(tmp_path: Path, watched: ConfigSource):
    project(tmp_path, files(4, NEW, tenant="replayed"))
    assert watched.poll()
    assert "is older than the signed config 5" in refusal(watched)
    assert watched.rejection is not None
    assert (watched.rejection.generation, watched.rejection.newest_generation) == (4, 5)
    assert generation_of(watched) == 5


def test_the_config_that_is_in_force_may_come_again(tmp_path: Path, watched: ConfigSource):
    project(tmp_path, files(4, NEW))
    watched.poll()
    project(tmp_path, files(5, NEW))
    assert watched.poll()
    assert (generation_of(watched), watched.rejection) == (5, None)


def test_a_pool_that_is_made_again_counts_anew_and_the_one_before_is_over(tmp_path: Path, watched: ConfigSource):
    project(tmp_path, files(1, NEW, created=CREATED_AGAIN))
    assert watched.poll()
    assert (generation_of(watched), watched.rejection) == (1, None)
    project(tmp_path, files(9, NEW, created=CREATED))
    assert watched.poll()
    assert "the config was signed for an earlier pool of this name" in refusal(watched)
    assert watched.rejection is not None
    assert watched.rejection.newest_generation is None, "no generation of that pool is newer"
    assert generation_of(watched) == 1


def test_a_forged_config_is_no_measure_of_what_is_older(tmp_path: Path, watched: ConfigSource):
    project(tmp_path, files(1000, THIEFS, created=CREATED_AGAIN))
    watched.poll()
    project(tmp_path, files(6, NEW))
    assert watched.poll()
    assert (generation_of(watched), watched.rejection) == (6, None)


def test_what_is_signed_and_broken_is_refused_as_without_the_demand(tmp_path: Path, watched: ConfigSource):
    broken = {"config.json": b'{"generation": 6'}
    project(tmp_path, broken | {SIGNATURE_KEY: sign_config(broken, [NEW], CREATED)})
    assert watched.poll()
    assert watched.rejection is not None
    assert "not valid JSON" in watched.rejection.error
    assert not watched.rejection.untrusted
