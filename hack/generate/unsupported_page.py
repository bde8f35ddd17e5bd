"""Writes docs/unsupported.md, the features of vLLM that zones do not support, from the code's declarations.

Run it after a change of what is refused, or of a route: make unsupported-page
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from string import Template

from tenantzone_runtime.frontend.routes import ROUTES, Access, Route
from tenantzone_runtime.unsupported import UNSUPPORTED, Setting, Unsupported

PAGE = Path(__file__).parents[2] / "docs" / "unsupported.md"

_PAGE = Template("""\
# What zones do not support

<!-- Written by `make unsupported-page` from what the code declares. Do not edit by hand. -->

TenantZone refuses features with which blocks or a tenant's input would bypass the zones. No refusal has a planned end.
[Features](features.md) lists the supported features and their tests.

## Refused by the engine

| feature | refused settings | why | instead | when |
|---|---|---|---|---|
$features

- **Start**: `tenantzone-runtime serve` exits with `FLAG can't be used: WHY; INSTEAD` before it loads a model. Your own
  `vllm serve` does not check flags, but settings in vLLM's configuration are refused when the model is loaded.
- **Model is loaded**: the engine process exits with `model MODEL can't be served with zones: WHAT (WHY; INSTEAD)`, also
  if the model itself or a config file turns the feature on.
- **Request**: only the request fails, with an error.

## Refused and bound by the frontend

This page lists all routes of each supported vLLM version. The frontend refuses any other route.

**Bound** routes: a seal that the scheduler checks ties each request to the zone of the tenant whose key the request
carries. A request with a field that would bypass the seal gets status 400:

| route | refused fields |
|---|---|
$sealed

**For clients with a key** (these routes do not use the KV cache): $keyed.

**For all clients**, even without a key: $open.

**Refused** with status 403 (a WebSocket, while it is opened):

| routes | why |
|---|---|
$refused
""")


def page() -> str:
    """The page's content."""
    return _PAGE.substitute(
        features="\n".join(map(_feature, UNSUPPORTED)),
        sealed="\n".join(f"| {_route(route)} | {_fields(route)} |" for route in _with(Access.SEALED)),
        keyed=_list(_with(Access.KEYED)),
        open=_list(_with(Access.OPEN)),
        refused="\n".join(_refused()),
    )


def _feature(unsupported: Unsupported) -> str:
    settings = [_setting(setting) for setting in (*unsupported.flags, *unsupported.variables)]
    times = ["start"] if settings else []
    times += ["model is loaded"] if unsupported.is_configured is not None else []
    columns = (unsupported.feature, "; ".join(settings), unsupported.reason, unsupported.instead)
    return f"| {' | '.join(columns)} | {'; '.join(times) or 'request'} |"


def _setting(setting: Setting) -> str:
    if setting.but_beside:
        return f"{_refused_values(setting)} without {' or '.join(map(_code, setting.but_beside))}"
    return _refused_values(setting)


def _refused_values(setting: Setting) -> str:
    names = ", ".join(map(_code, setting.names))
    if setting.without is not None:
        return f"{names} without {_code(setting.without)}"
    if setting.bound_to is not None:
        return f"{names} other than {_code(setting.bound_to)}"
    if setting.but_for:
        return f"{names} other than {', '.join(map(_code, setting.but_for))}"
    return ", ".join(_code(f"{name} {value}") for name in setting.names for value in setting.refused) or names


def _with(access: Access) -> list[Route]:
    return [route for route in ROUTES if route.access is access]


def _fields(route: Route) -> str:
    return "; ".join(f"{_code(name)}: {reason}" for name, reason in route.refused_fields.items())


def _refused() -> Iterator[str]:
    for reason, routes in groupby(_with(Access.REFUSED), key=lambda route: route.reason):
        yield f"| {_list(routes)} | {reason} |"


def _list(routes: Iterable[Route]) -> str:
    return ", ".join(map(_route, routes))


def _route(route: Route) -> str:
    since = f" (since {route.since})" if route.since else ""
    return _code(f"{route.method} {route.path}") + since


def _code(text: str) -> str:
    return f"`{text}`"


if __name__ == "__main__":
    PAGE.write_text(page())
