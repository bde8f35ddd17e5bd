"""What a config says of a zone is also looked at: no field of the core's specs is carried along and never read.

And no field of a config is left out of the random lives in which the core is compared with the reference.
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
from tenantzone_runtime.zones.enforcement import Watermarks
from tenantzone_runtime.zones.latency_targets import LatencyTargets
from tenantzone_runtime.zones.queue import QueueBounds
from tenantzone_runtime.zones.quota import Quota
from tenantzone_runtime.zones.zone import IdleTimes, LoanTerms, ReleaseSteps, Retention, SeatQuota, ZoneSpec
from tests.zones.configs import configs

RUNTIME = Path(tenantzone_runtime.__path__[0])
TRANSLATION = {"configure.py", "registration.py"}
"""They make specs of configs; that is carrying along, and not enforcing."""


CALLED = {
    ZoneSpec: {"spec"},
    Quota: {"quota"},
    IdleTimes: {"idle"},
    ReleaseSteps: {"release"},
    LoanTerms: {"lending", "terms"},
    QueueBounds: {"bounds"},
    LatencyTargets: {"targets"},
    Retention: {"retention"},
    SeatQuota: {"seats"},
    Watermarks: {"watermarks"},
}
"""How each is called wherever it is looked at: ``zone.spec.idle.after_seconds``, or ``idle.after_seconds``."""


def fields_read() -> Iterator[tuple[str, str]]:
    """Of what is called so, which field is read."""
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
    unread = [field.name for field in fields(spec) if field.name not in read]

    assert unread == [], "declared, read by the operator, handed to the core, and then nobody looks at it"


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
"""What says nothing of who gets what, once it waits, or is nothing to such a zone; a template's time, which zones draw;
and what is about tiers, which have lives of their own (test_tier_machine.py)."""


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """What each field is, and not what is written of it: what says nothing is left out of a config's text."""
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
