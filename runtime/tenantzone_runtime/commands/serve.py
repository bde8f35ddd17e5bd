"""``tenantzone-runtime serve``: runs ``vllm serve`` with the flags that enable zones.

The command refuses flags that are incompatible with zones, and sets the environment. Then ``vllm serve`` replaces it in
the same process, so that signals and exit codes are vLLM's. Later, the scheduler checks vLLM's resolved configuration,
which also includes settings from a config file.
"""

import argparse
import importlib.util
import logging
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tenantzone_contract.keys.tls import TlsFiles
from tenantzone_contract.logs import JsonFormatter
from tenantzone_runtime import logs, settings
from tenantzone_runtime.commands.serve_flags import MANAGER_FILES, make_parser
from tenantzone_runtime.offloading_flags import (
    TIERS_FLAG,
    DiskFlags,
    ManagerFlags,
    TierFlagError,
    TierFlags,
    check_kv_transfer_config,
    kv_transfer_config,
)
from tenantzone_runtime.shared.manager.urls import check_tls, check_url
from tenantzone_runtime.shared.settings import QUERY_SECONDS, check_query_seconds
from tenantzone_runtime.unsupported import check
from tenantzone_runtime.usage import FLAGS, UsageError, flag_values

_LAUNCHER = "tenantzone_runtime.engine.launch"


def main(arguments: Sequence[str]) -> None:
    """Replace this process with ``vllm serve``, or print the flags to add to ``vllm serve``.

    Args:
        arguments: the arguments after ``serve``: flags of this command and of vLLM, in any order.
    """
    parser = make_parser()
    own, vllm_arguments = parser.parse_known_args(arguments)
    if own.help == "":
        parser.print_help()
        return
    if own.help is not None:
        vllm_arguments.append(f"--help={own.help}")
    try:
        variables = _variables(own)
        tiers = _tiers(own, vllm_arguments)
        vllm_arguments += tiers
        check(vllm_arguments, os.environ)
        if own.log_format == "json":
            variables |= _json_logs(vllm_arguments, os.environ)
            vllm_arguments += _without_progress_bars(vllm_arguments)
        if own.show_flags:
            _show(variables, tiers)
            return
        if importlib.util.find_spec("vllm") is None:
            raise UsageError(
                "vLLM is not installed; run pip install 'tenantzone[gpu]', or 'tenantzone[cpu]' without a GPU"
            )
    except (UsageError, TierFlagError) as error:
        sys.exit(f"tenantzone-runtime serve: {error}")
    # Use -P, so that Python never imports modules from the current folder.
    command = [sys.executable, "-P", "-m", _LAUNCHER, *with_flags(vllm_arguments)]
    _say(f"vllm serve {shlex.join(with_flags(vllm_arguments))}", own.log_format)
    os.execve(sys.executable, command, {**os.environ, **variables})


def with_flags(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments for vLLM, with missing flags for zones at the end: vLLM's last middleware runs first."""
    given = flag_values(arguments)
    missing = [(name, value) for name, value in FLAGS.items() if value not in given.get(name, ())]
    return [*arguments, *(part for flag in missing for part in flag)]


def _variables(own: argparse.Namespace) -> dict[str, str]:
    """Returns environment variables that pass this command's flags on to vLLM; raises UsageError for invalid values."""
    for flag, folder in (
        ("--zones-config", own.zones_config),
        ("--tenant-keys", own.tenant_keys),
        ("--salt-key", own.salt_key),
        ("--tenant-identity", own.tenant_identity),
        ("--admin-token", own.admin_token),
        ("--journal", own.journal),
        ("--record", own.record),
    ):
        if folder is not None and folder.exists() and not folder.is_dir():
            raise UsageError(f"{flag} {folder} is not a folder; name the folder that contains the file")
    if own.max_auto_registered_series is not None and own.max_auto_registered_series < 0:
        raise UsageError("--max-auto-registered-series must not be negative")
    if own.admin_port is not None and not 0 <= own.admin_port <= 65535:
        raise UsageError(f"--admin-port {own.admin_port} is not a port; choose a number from 0 to 65535")
    chosen = {
        settings.CONFIG_DIR: own.zones_config and str(own.zones_config.absolute()),
        settings.KEYS_DIR: own.tenant_keys and str(own.tenant_keys.absolute()),
        settings.SALT_DIR: own.salt_key and str(own.salt_key.absolute()),
        settings.IDENTITY_DIR: own.tenant_identity and str(own.tenant_identity.absolute()),
        settings.RECORD_DIR: own.record and str(own.record.absolute()),
        settings.JOURNAL_DIR: own.journal and str(own.journal.absolute()),
        settings.SCRUB_BLOCKS: 1 if own.scrub_blocks else None,
        settings.MAX_AUTO_REGISTERED_SERIES: own.max_auto_registered_series,
        settings.METRICS_LEVEL: own.metrics_level,
        settings.ADMIN_TOKEN_DIR: own.admin_token and str(own.admin_token.absolute()),
        settings.ADMIN_OPEN: 1 if own.admin_open else None,
        settings.SIGNED_CONFIG: 1 if own.signed_config else None,
        settings.ADMIN_HOST: own.admin_host,
        settings.ADMIN_PORT: own.admin_port,
    }
    return {name: str(value) for name, value in chosen.items() if value is not None}


def _tiers(own: argparse.Namespace, arguments: Sequence[str]) -> list[str]:
    """Returns the arguments for vLLM that configure tiers.

    Raises:
        UsageError: flags for tiers contradict each other, or need another flag.
        TierFlagError: the configuration of a tier is invalid.
    """
    given = flag_values(arguments).get(TIERS_FLAG, ())
    if own.cpu_tier is None:
        if own.disk_tier is not None or own.disk_tier_size is not None:
            raise UsageError("--disk-tier needs --cpu-tier, because the disk is read through CPU memory")
        if own.manager_url is not None or own.manager_budget is not None or any(_manager_files(own).values()):
            raise UsageError("--manager-url needs --cpu-tier, because storages are read through CPU memory")
        for value in given:
            check_kv_transfer_config(value)
        return []
    if given:
        raise UsageError(f"--cpu-tier and {TIERS_FLAG} can't be used together, because --cpu-tier sets the other flag")
    if (own.disk_tier is None) != (own.disk_tier_size is None):
        raise UsageError("--disk-tier and --disk-tier-size must be given together: the folder and its maximum size")
    if own.disk_tier is not None and own.disk_tier.exists() and not own.disk_tier.is_dir():
        raise UsageError(f"--disk-tier {own.disk_tier} is not a folder")
    disk = None if own.disk_tier is None else DiskFlags(own.disk_tier.absolute(), own.disk_tier_size)
    value = kv_transfer_config(TierFlags(own.cpu_tier, disk, own.tier_chunk, _manager(own)))
    if not own.show_flags:
        check_kv_transfer_config(value)
    return [TIERS_FLAG, value]


def _manager(own: argparse.Namespace) -> ManagerFlags | None:
    """Returns the settings of the KV-cache manager; None if no flag names a manager.

    Raises:
        UsageError: a flag for the manager is invalid, or needs another flag.
    """
    files = _manager_files(own)
    for flag, path in files.items():
        if path is not None and own.manager_url is None:
            raise UsageError(f"{flag} needs --manager-url")
        if path is not None and path.is_dir():
            raise UsageError(f"{flag} {path} is a folder; name the file")
    if own.manager_url is None:
        if own.manager_budget is not None:
            raise UsageError("--manager-budget needs --manager-url")
        return None
    token, authorities, certificate, key = files.values()
    try:
        check_url(own.manager_url)
    except ValueError as error:
        raise UsageError(f"--manager-url {error}") from None
    try:
        tls = TlsFiles(certificate, key, authorities)
        check_tls(own.manager_url, tls)
    except ValueError as error:
        raise UsageError(f"the TLS files for --manager-url can't be used: {error}") from None
    try:
        budget = check_query_seconds(QUERY_SECONDS if own.manager_budget is None else own.manager_budget)
    except ValueError as error:
        raise UsageError(f"--manager-budget {error}") from None
    return ManagerFlags(own.manager_url, token, tls, budget)


def _manager_files(own: argparse.Namespace) -> dict[str, Path | None]:
    """Returns the file that each flag ``--manager-*-file`` names, by flag; None if the flag is not given."""
    named = {name: getattr(own, f"manager_{name.replace('-', '_')}_file") for name in MANAGER_FILES}
    return {f"--manager-{name}-file": path and path.absolute() for name, path in named.items()}


def _json_logs(arguments: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variables that make vLLM log JSON.

    Raises:
        UsageError: another flag or variable also configures the log format.
    """
    flags = flag_values(arguments)
    for name in ("--log-config-file", "--logging-config", logs.CONFIG_VARIABLE, "VLLM_CONFIGURE_LOGGING"):
        if name in flags or environ.get(name, "1") != "1":
            raise UsageError(f"--log-format json and {name} can't be used together, because both set the log format")
    level = flags.get("--log-level")
    return {logs.CONFIG_VARIABLE: str(logs.JSON_CONFIG)} | ({logs.LEVEL_VARIABLE: level[-1].upper()} if level else {})


def _without_progress_bars(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments for vLLM that disable progress bars, which would appear between JSON log lines."""
    given = flag_values(arguments)
    return [] if "--use-tqdm-on-load" in given else ["--no-use-tqdm-on-load"]


def _say(message: str, log_format: str) -> None:
    line = f"tenantzone-runtime: {message}"
    if log_format == "json":
        fields = {"name": __name__, "levelno": logging.INFO, "levelname": "INFO", "msg": message}
        line = JsonFormatter().format(logging.makeLogRecord(fields))
    print(line, file=sys.stderr, flush=True)


def _show(variables: Mapping[str, str], tiers: Sequence[str]) -> None:
    """Print flags for ``vllm serve`` to standard output, and variables for its environment to standard error."""
    plain = settings.read_settings({})
    needed = {
        name: value
        for name, value in variables.items()
        if name.startswith("VLLM_") or settings.read_settings({name: value}) != plain
    }
    if needed:
        print("Set in vLLM's environment:", file=sys.stderr)
        for name, value in needed.items():
            print(f"  {name}={shlex.quote(value)}", file=sys.stderr)
    print(shlex.join([*(part for flag in FLAGS.items() for part in flag), *tiers]))
