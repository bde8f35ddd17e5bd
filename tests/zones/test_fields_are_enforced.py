"""Every field of the core's specs is read by the code that enforces it, and not only passed along.

Every field of a config also occurs in the random lives in which the core is compared with the reference.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from pydantic import BaseModel

import tenantzone_runtime
from tenantzone_contract.zone_config.zone_terms import Idle, LatencyTargets, Lending, QueueBounds, Release, Retention
from tenantzone_runtime.zones.config.enforcement import Watermarks
from tenantzone_runtime.zones.model.quota import Quota
from tenantzone_runtime.zones.model.zone import SeatQuota, ZoneSpec
from tests.zones.configs import configs

RUNTIME = Path(tenantzone_runtime.__path__[0])
TRANSLATION = {"configure.py", "registration.py"}
"""Files that make specs of configs: that only passes fields along."""


CALLED = {
    ZoneSpec: {"spec"},
    Quota: {"quota"},
    Idle: {"idle"},
    Release: {"release"},
    Lending: {"lending", "terms"},
    QueueBounds: {"bounds"},
    LatencyTargets: {"targets"},
    Retention: {"retention"},
    SeatQuota: {"seats"},
    Watermarks: {"watermarks"},
}
"""The names under which the code reads each spec: ``zone.spec.idle.after_seconds``, or ``idle.after_seconds``."""

CONVERTED = {(Lending, "lendable"): "Quota.lendable", (Release, "every_seconds"): "Idle.releases"}
"""Fields that the code reads in another form."""


def fields_read() -> Iterator[tuple[str, str]]:
    """The fields that are read under these names."""
    folders = ("zones", "engine", "housekeeping")
    for module in (module for folder in folders for module in (RUNTIME / folder).rglob("*.py")):
        if module.name not in TRANSLATION:
            for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    owner = node.value
                    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
                    yield name.lstrip("_"), node.attr


READ = set(fields_read())


@pytest.mark.parametrize("spec", CALLED)
def test_each_field_of_a_spec_is_read_by_what_enforces_it(spec: type):
    read = {field for name, field in READ if name in CALLED[spec]}
    names = spec.model_fields if issubclass(spec, BaseModel) else [field.name for field in fields(spec)]
    unread = [name for name in names if name not in read and (spec, name) not in CONVERTED]

    assert unread == [], "declared, read by the operator, handed to the core, and not used there"


NOT_DRAWN = {
    "schema_version",
    "generation",
    "pool.name",
    "pool.namespace",
    "pool.identity",
    "pool.tiers.cpu",
    "pool.tiers.disk",
    "pool.unknown_tenants.template.idle.evict_after_seconds",
    "zones.adapters",
    "zones.fairness.header",
    "zones.generation",
    "zones.idle.forget_after_seconds",
    "zones.offload",
    "zones.queue.requests",
    "zones.queue.tokens",
    "zones.request_limits.body_bytes",
    "zones.request_limits.choices",
    "zones.request_limits.logprobs",
    "zones.request_limits.max_tokens",
    "zones.request_limits.prompts",
    "zones.request_limits.structured_outputs",
    "zones.request_priority.max",
    "zones.request_priority.min",
    "zones.scrub",
}
"""Fields that do not affect how a waiting request is served, or do not apply to such a zone; a template's time, which
zones draw; and tier fields, which have their own random lives (test_tier_machine.py)."""


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The value of each field, rather than the config's text, which leaves out fields without effect."""
    if isinstance(value, BaseModel):
        yield path, BaseModel
        for name in type(value).model_fields:
            yield from leaves(getattr(value, name), f"{path}.{name}".lstrip("."))
    elif isinstance(value, tuple):
        for inner in value:
            yield from leaves(inner, path)
    else:
        yield path, value


def test_each_field_of_a_config_is_drawn_in_the_random_lives():
    drawn = defaultdict(set)

    @settings(max_examples=200, derandomize=True, database=None)
    @given(configs())
    def draw(config):
        for path, value in leaves(config):
            drawn[path].add(value)

    draw()
    assert {path for path, values in drawn.items() if len(values) == 1 and values != {BaseModel}} == NOT_DRAWN
