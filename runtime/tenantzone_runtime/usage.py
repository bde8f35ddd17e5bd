"""Which of vLLM's flags and variables go together with zones, and which do not."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

FLAGS = {
    "--scheduler-cls": "tenantzone_runtime.engine.scheduler.ZoneScheduler",
    "--middleware": "tenantzone_runtime.door.middleware.TenantMiddleware",
}
"""What ``vllm serve`` needs to enforce zones."""

_PLUGIN = "tenantzone"


class UsageError(ValueError):
    """Arguments or an environment that do not go together with zones; the message says what to change."""


def _given(value: str) -> bool:
    return True


def _above_one(value: str) -> bool:
    return value != "1"


@dataclass(frozen=True, slots=True)
class _Unsupported:
    names: tuple[str, ...]
    reason: str
    when: Callable[[str], bool] = _given


_FLAGS_UNSUPPORTED = (
    _Unsupported(
        ("--scheduler-cls",),
        "zones are enforced by a scheduler of their own",
        lambda value: value != FLAGS["--scheduler-cls"],
    ),
    _Unsupported(("--grpc", "--grpc-port"), "gRPC requests do not pass the front door that binds them to tenants"),
    _Unsupported(("--tokens-only",), "the routes that it serves can't be bound to tenants yet"),
    _Unsupported(("--headless",), "its requests come from an API server elsewhere, which does not share its seal key"),
    _Unsupported(("--api-key",), "tenants' keys come from --tenant-keys; two lists of keys would exclude each other"),
    _Unsupported(("--data-parallel-size", "-dp"), "zones cover one engine; run one Pod for each", _above_one),
    _Unsupported(
        (
            "--data-parallel-size-local",
            "--data-parallel-rank",
            "--data-parallel-external-lb",
            "--data-parallel-hybrid-lb",
        ),
        "zones cover one engine; run one Pod for each",
    ),
    _Unsupported(("--ec-transfer-config",), "encoder caches are shared past the zones; not supported yet"),
    _Unsupported(("--kv-offloading-size",), "it moves blocks past the zones; not supported yet"),
    _Unsupported(("--runner",), "pooling requests are not bound to zones yet", lambda value: value == "pooling"),
    _Unsupported(
        ("--convert",), "pooling requests are not bound to zones yet", lambda value: value in ("embed", "classify")
    ),
    _Unsupported(("--pipeline-parallel-size", "-pp"), "not supported together with zones yet", _above_one),
    _Unsupported(("--kv-transfer-config",), "KV connectors move blocks past the zones; not supported yet"),
    _Unsupported(
        ("--speculative-config", "-sc", "--spec-method", "--spec-model"), "not supported together with zones yet"
    ),
    _Unsupported(("--no-async-scheduling",), "the zone scheduler extends vLLM's asynchronous one"),
)

_VARIABLES_UNSUPPORTED = (
    _Unsupported(
        ("VLLM_USE_RUST_FRONTEND",),
        "the Rust front end does not run the front door that binds requests to tenants",
        lambda value: value != "0",
    ),
    _Unsupported(
        ("VLLM_API_KEY",), "tenants' keys come from --tenant-keys; two lists of keys would exclude each other"
    ),
    _Unsupported(
        ("VLLM_PLUGINS",),
        f"it leaves out the plugin {_PLUGIN!r}, which makes the seal key; add it to the list",
        lambda value: _PLUGIN not in value.split(","),
    ),
)


def check(arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """Check that vLLM's arguments and environment go together with zones.

    Raises:
        UsageError: a flag or a variable, named, and why.
    """
    flags = flag_values(arguments)
    for unsupported in _FLAGS_UNSUPPORTED:
        for name in unsupported.names:
            if any(unsupported.when(value) for value in flags.get(name, ())):
                raise UsageError(f"{name} can't be used: {unsupported.reason}")
    for unsupported in _VARIABLES_UNSUPPORTED:
        for name in unsupported.names:
            if environ.get(name) and unsupported.when(environ[name]):
                raise UsageError(f"the environment variable {name} can't be used: {unsupported.reason}")


def flag_values(arguments: Sequence[str]) -> dict[str, list[str]]:
    """Each flag that is given, in vLLM's spelling, with its values; "" for one without.

    vLLM takes ``--a_b`` for ``--a-b``, and ``--a.b`` for one field of a flag that is a JSON object.
    """
    values: dict[str, list[str]] = {}
    for argument, following in pairwise([*arguments, "-"]):
        if not argument.startswith("-"):
            continue
        name, equals, value = argument.partition("=")
        if not equals and not following.startswith("-"):
            value = following
        values.setdefault(name.partition(".")[0].replace("_", "-"), []).append(value)
    return values
