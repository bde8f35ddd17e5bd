"""What a config says of a zone is also looked at: no field of the core's specs is carried along and never read."""

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import tenantzone_runtime
from tenantzone_runtime.zones.enforcement import Watermarks
from tenantzone_runtime.zones.quota import Quota
from tenantzone_runtime.zones.zone import IdleTimes, LoanTerms, ReleaseSteps, ZoneSpec

RUNTIME = Path(tenantzone_runtime.__path__[0])
TRANSLATION = {"configure.py", "registration.py"}
"""They make specs of configs; that is carrying along, and not enforcing."""


CALLED = {
    ZoneSpec: {"spec"},
    Quota: {"quota"},
    IdleTimes: {"idle"},
    ReleaseSteps: {"release"},
    LoanTerms: {"lending", "terms"},
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
