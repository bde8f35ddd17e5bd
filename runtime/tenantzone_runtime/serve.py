"""``tenantzone-runtime serve``: vLLM's own ``serve`` with the flags that turn zones on.

It refuses what does not go together with zones, sets the environment and then becomes ``vllm serve``: same process, so
signals and exit codes are vLLM's. What the resolved configuration says, with what a config file adds, is checked again
by the scheduler.
"""

import argparse
import importlib.util
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tenantzone_contract import settings

FLAGS = {
    "--scheduler-cls": "tenantzone_runtime.engine.scheduler.ZoneScheduler",
    "--middleware": "tenantzone_runtime.door.middleware.TenantMiddleware",
}
"""What ``vllm serve`` needs to enforce zones."""

_PLUGIN = "tenantzone"
_LAUNCHER = "tenantzone_runtime.engine.launch"


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


def main(arguments: Sequence[str]) -> None:
    """Become ``vllm serve``, or print what to add to it.

    Args:
        arguments: ours and vLLM's, mixed.
    """
    parser = _parser()
    own, vllm_arguments = parser.parse_known_args(arguments)
    if own.help == "":
        parser.print_help()
        return
    if own.help is not None:
        vllm_arguments.append(f"--help={own.help}")
    try:
        variables = _variables(own)
        check(vllm_arguments, os.environ)
        if own.show_flags:
            _show(variables)
            return
        if importlib.util.find_spec("vllm") is None:
            raise UsageError("vLLM is not installed: pip install 'tenantzone[gpu]', or 'tenantzone[cpu]' without a GPU")
    except UsageError as error:
        sys.exit(f"tenantzone-runtime serve: {error}")
    # -P: a module of vLLM's must never come from the current folder.
    command = [sys.executable, "-P", "-m", _LAUNCHER, *with_flags(vllm_arguments)]
    print(f"tenantzone-runtime: vllm serve {shlex.join(with_flags(vllm_arguments))}", file=sys.stderr, flush=True)
    os.execve(sys.executable, command, {**os.environ, **variables})


def check(arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """Refuse what does not go together with zones.

    Raises:
        UsageError: a flag or a variable, named, and why.
    """
    flags = _flag_values(arguments)
    for unsupported in _FLAGS_UNSUPPORTED:
        for name in unsupported.names:
            if any(unsupported.when(value) for value in flags.get(name, ())):
                raise UsageError(f"{name} can't be used: {unsupported.reason}")
    for unsupported in _VARIABLES_UNSUPPORTED:
        for name in unsupported.names:
            if environ.get(name) and unsupported.when(environ[name]):
                raise UsageError(f"the environment variable {name} can't be used: {unsupported.reason}")


def with_flags(arguments: Sequence[str]) -> list[str]:
    """vLLM's arguments with ours. Ours come last: the last middleware is the outermost, so nothing runs before it."""
    given = _flag_values(arguments)
    missing = [(name, value) for name, value in FLAGS.items() if value not in given.get(name, ())]
    return [*arguments, *(part for flag in missing for part in flag)]


def _flag_values(arguments: Sequence[str]) -> dict[str, list[str]]:
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


def _variables(own: argparse.Namespace) -> dict[str, str]:
    """The environment that our own flags stand for."""
    for flag, folder in (
        ("--zones-config", own.zones_config),
        ("--tenant-keys", own.tenant_keys),
        ("--journal", own.journal),
    ):
        if folder is not None and folder.exists() and not folder.is_dir():
            raise UsageError(f"{flag} {folder} is not a folder; give the folder that holds the file")
    if own.admin_port is not None and not 0 <= own.admin_port <= 65535:
        raise UsageError(f"--admin-port {own.admin_port} is no port; choose one from 0 to 65535")
    chosen = {
        settings.CONFIG_DIR: own.zones_config and str(own.zones_config.absolute()),
        settings.KEYS_DIR: own.tenant_keys and str(own.tenant_keys.absolute()),
        settings.JOURNAL_DIR: own.journal and str(own.journal.absolute()),
        settings.SCRUB_BLOCKS: 1 if own.scrub_blocks else None,
        settings.ADMIN_HOST: own.admin_host,
        settings.ADMIN_PORT: own.admin_port,
    }
    return {name: str(value) for name, value in chosen.items() if value is not None}


def _show(variables: Mapping[str, str]) -> None:
    """Print what to add to one's own ``vllm serve``: on standard output the flags, so that a shell can insert them."""
    plain, chosen = settings.read_settings({}), settings.read_settings(variables)
    if plain != chosen:
        print("Set in vLLM's environment:", file=sys.stderr)
        for name, value in variables.items():
            if settings.read_settings({name: value}) != plain:
                print(f"  {name}={shlex.quote(value)}", file=sys.stderr)
    print(shlex.join(part for flag in FLAGS.items() for part in flag))


def _parser() -> argparse.ArgumentParser:
    default = settings.read_settings({})
    parser = argparse.ArgumentParser(
        prog="tenantzone-runtime serve",
        usage="%(prog)s MODEL [options] [any option of vllm serve]",
        description="Serve a model with vLLM, zones enforced. Options that are not listed here go to vLLM unchanged.",
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument(
        "-h",
        "--help",
        nargs="?",
        const="",
        metavar="WHAT",
        help="print this, or vLLM's help on WHAT ('all': everything)",
    )
    parser.add_argument(
        "--zones-config",
        type=Path,
        metavar="DIR",
        help=f"the folder with the pool's config.json (default: {default.config_dir})",
    )
    parser.add_argument(
        "--tenant-keys",
        type=Path,
        metavar="DIR",
        help=f"the folder with one file of API keys per tenant (default: {default.keys_dir})",
    )
    parser.add_argument(
        "--admin-host", metavar="HOST", help=f"where report and metrics are served (default: {default.admin_host})"
    )
    parser.add_argument(
        "--admin-port", type=int, metavar="PORT", help=f"0 chooses a free one (default: {default.admin_port})"
    )
    parser.add_argument(
        "--journal",
        type=Path,
        metavar="DIR",
        help="where an audit journal is written, of this engine alone (default: none)",
    )
    parser.add_argument(
        "--scrub-blocks",
        action="store_true",
        help="prepare a GPU's workers for zones with scrub: OnTransfer; on a CPU they always are",
    )
    parser.add_argument(
        "--show-flags",
        action="store_true",
        help="print what to add to your own 'vllm serve' to turn zones on, and exit",
    )
    return parser
