"""Settings from the environment."""

from dataclasses import fields
from pathlib import Path

import pytest

from tenantzone_runtime.metrics_levels import LEVELS
from tenantzone_runtime.settings import Bounds, read_settings


def test_an_empty_environment_gives_what_the_manifests_mount():
    settings = read_settings({})
    assert settings.config_dir == Path("/etc/tenantzone/config")
    assert settings.keys_dir == Path("/etc/tenantzone/keys")
    assert settings.salt_dir == Path("/etc/tenantzone/salt")
    assert settings.admin_port == 9464
    assert settings.open_routes == frozenset()
    assert settings.seal_key == b""
    assert settings.journal_dir is None
    assert settings.max_auto_registered_series == 100
    assert settings.metrics_level == "basic"


def test_open_routes_are_separated_by_commas():
    assert read_settings({"TENANTZONE_OPEN_ROUTES": "/metrics,/load,"}).open_routes == {"/metrics", "/load"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TENANTZONE_JOURNAL_KEEP", "-1"),
        ("TENANTZONE_MAX_AUTO_REGISTERED_SERIES", "many"),
        ("TENANTZONE_METRICS_LEVEL", "everything"),
        ("TENANTZONE_JOURNAL_MAX_BYTES", "1M"),
        ("TENANTZONE_MAX_TEXT_BYTES", "1M"),
        ("TENANTZONE_ADMIN_PORT", "high"),
        ("TENANTZONE_ADMIN_PORT", ""),
        ("TENANTZONE_SEAL_KEY", "xyz"),
        ("TENANTZONE_SIGNED_CONFIG", "true"),
    ],
)
def test_a_variable_that_can_not_be_understood_is_named(name, value):
    with pytest.raises(ValueError, match=name):
        read_settings({name: value})


@pytest.mark.parametrize(("value", "demanded"), [("1", True), ("0", False), ("", False)])
def test_signed_configs_can_be_demanded(value: str, demanded: bool):
    assert not read_settings({}).signed_config
    assert read_settings({"TENANTZONE_SIGNED_CONFIG": value}).signed_config is demanded


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_of_metrics_can_be_set(level):
    assert read_settings({"TENANTZONE_METRICS_LEVEL": level}).metrics_level == level


def test_each_bound_of_what_tenants_send_can_be_set():
    bodies = ("MAX_TEXT_BYTES", "MAX_BODY_BYTES", "MAX_TENANT_BODY_BYTES", "MAX_HELD_BODY_BYTES")
    media = ("MAX_MEDIA_ITEMS", "MAX_IMAGE_PIXELS", "MAX_REQUEST_PIXELS", "MAX_AUDIO_SAMPLES")
    media += ("MAX_MEDIA_FILE_BYTES", "MAX_TENANT_MEDIA_BYTES", "MAX_HELD_MEDIA_BYTES")
    names = (*bodies, "MAX_TENANT_REQUESTS", "MAX_GRAMMAR_BYTES", "MAX_PROMPTS", *media)
    given = {f"TENANTZONE_{name}": str(number) for number, name in enumerate(names)}
    assert read_settings(given).bounds == Bounds(*range(len(fields(Bounds))))


def test_a_tenant_may_have_more_media_than_all_have_by_default_where_that_alone_is_set():
    large = read_settings({"TENANTZONE_MAX_TENANT_MEDIA_BYTES": str(2**40)}).bounds
    assert (large.max_tenant_media_bytes, large.max_held_media_bytes) == (2**40, 2**40)
