"""Runs the plugin's commands, except ``replay``, and ``advise`` for a trace."""

import argparse
import dataclasses
import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from tenantzone_cli.actions.migrate import MigrateError, Move, open_move
from tenantzone_cli.actions.migrate import table as migration_table
from tenantzone_cli.actions.purge import PurgeError, ask, new_id, wait
from tenantzone_cli.actions.purge import table as purge_table
from tenantzone_cli.actions.salt import SaltError, key_of_file, key_of_pool
from tenantzone_cli.actions.storage import document as document_of_storages
from tenantzone_cli.actions.storage import read_storages, tables
from tenantzone_cli.api import Api, ApiError, Unreachable
from tenantzone_cli.arguments import kubectl_flags
from tenantzone_cli.doctor.diagnosis import examine
from tenantzone_cli.doctor.finding import Level, lines
from tenantzone_cli.kubectl import Kubectl, KubectlError
from tenantzone_cli.names import INTERRUPTED
from tenantzone_cli.views.explain import explain, gather
from tenantzone_cli.views.live_advice import NoPoolError, advice_document, advice_table, read_pools
from tenantzone_cli.views.rows import Rates
from tenantzone_cli.views.top import Selection, document, read_rows, silent_engines, table
from tenantzone_cli.watch import watch
from tenantzone_contract.keys.salt import tenant_salt
from tenantzone_contract.text import printable

_INTERVAL_SECONDS = 2.0


def run(parsed: argparse.Namespace) -> int:
    """Run a command with its arguments, and return the exit code."""
    # Raise SystemExit on SIGTERM, because otherwise kubectl proxy would keep running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return _run(parsed)
    except (ApiError, Unreachable, KubectlError, SaltError, PurgeError, MigrateError, NoPoolError) as error:
        print(printable(f"kubectl tenantzone: {error}"), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe. Redirect the output, because otherwise Python would raise again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(parsed: argparse.Namespace) -> int:
    if parsed.command == "salt" and parsed.key_file is not None:
        return _print_salt(key_of_file(parsed.key_file), parsed)
    kubectl = Kubectl(kubectl_flags(parsed))
    # Start both kubectl processes at the same time, because each needs a moment to start.
    with ThreadPoolExecutor(max_workers=1) as thread:
        asked = thread.submit(_namespace, kubectl, parsed)
        with kubectl.connected() as api:
            commands = {
                "top": _top,
                "explain": _explain,
                "doctor": _doctor,
                "storage": _storage,
                "salt": _salt,
                "purge": _purge,
                "migrate": _migrate,
                "advise": _advise,
            }
            run = commands[parsed.command]
            return run(api, asked.result(), parsed)


def _namespace(kubectl: Kubectl, parsed: argparse.Namespace) -> str | None:
    """Returns the namespace from the flag, or else from kubectl's context; None for all namespaces."""
    if getattr(parsed, "all_namespaces", False):
        return None
    namespace: str | None = parsed.namespace
    return namespace or kubectl.namespace()


def _top(api: Api, namespace: str | None, parsed: argparse.Namespace) -> int:
    selection = Selection(namespace, parsed.pool, parsed.engines, parsed.live, parsed.sort)
    rates = Rates()
    is_watched = parsed.watch if parsed.watch is not None else sys.stdout.isatty() and not parsed.output

    def look() -> list[str]:
        rows, answers = read_rows(api, selection)
        rows = rates.add(rows, time.monotonic())
        if parsed.output:
            return [document(rows, selection, indent=None if is_watched else 1)]
        return _fit_to_show([*table(rows, selection), *silent_engines(answers)])

    def look_again() -> list[str]:
        try:
            return look()
        except (ApiError, Unreachable) as error:
            # Keep watching, because the API server may answer again, but show the error instead of old numbers.
            return _fit_to_show([f"kubectl tenantzone: {error}"])

    if is_watched:
        watch(look_again, parsed.interval or _INTERVAL_SECONDS)
    elif parsed.interval is not None:
        look()
        time.sleep(parsed.interval)
    print("\n".join(look()))
    return 0


def _explain(api: Api, namespace: str | None, parsed: argparse.Namespace) -> int:
    assert namespace is not None, "one zone is in one namespace"
    zone = parsed.zone.rpartition("/")[2]
    print("\n".join(_fit_to_show(explain(gather(api, namespace, zone, time.time())))))
    return 0


def _doctor(api: Api, namespace: str | None, parsed: argparse.Namespace) -> int:
    findings = examine(api, namespace, parsed.operator_namespace)
    if parsed.output:
        print(json.dumps({"findings": [dataclasses.asdict(finding) for finding in findings]}, indent=1))
    else:
        print("\n".join(_fit_to_show(lines(findings))))
    return 1 if any(finding.level is Level.FAIL for finding in findings) else 0


def _advise(api: Api, namespace: str | None, parsed: argparse.Namespace) -> int:
    def look() -> list[str]:
        pools = read_pools(api, namespace, parsed.pool)
        if parsed.output:
            return [advice_document(pools, indent=None if parsed.watch else 1)]
        return _fit_to_show(advice_table(pools, time.time()))

    def look_again() -> list[str]:
        try:
            return look()
        except (ApiError, Unreachable) as error:
            return _fit_to_show([f"kubectl tenantzone: {error}"])

    if parsed.watch:
        watch(look_again, parsed.interval or _INTERVAL_SECONDS)
    print("\n".join(look()))
    return 0


def _storage(api: Api, _: str | None, parsed: argparse.Namespace) -> int:
    storages, groups = read_storages(api)
    print(
        document_of_storages(storages, groups) if parsed.output else "\n".join(_fit_to_show(tables(storages, groups)))
    )
    return 0


def _salt(api: Api, namespace: str | None, parsed: argparse.Namespace) -> int:
    assert namespace is not None, "one pool is in one namespace"
    return _print_salt(key_of_pool(api, namespace, parsed.pool), parsed)


def _purge(api: Api, namespace: str | None, parsed: argparse.Namespace) -> int:
    assert namespace is not None, "one zone is in one namespace"
    zone, purge = parsed.zone.rpartition("/")[2], new_id(time.time())
    ask(api, namespace, zone, purge)
    if parsed.no_wait:
        print(purge)
        return 0
    record = wait(api, namespace, zone, purge, parsed.timeout, _say)
    print(json.dumps(record, indent=1) if parsed.output else "\n".join(_fit_to_show(purge_table(record))))
    return 0


def _migrate(api: Api, namespace: str | None, parsed: argparse.Namespace) -> int:
    assert namespace is not None, "one zone is in one namespace"
    zone = parsed.zone.rpartition("/")[2]
    move = open_move(api, namespace, zone, parsed.source, parsed.target, parsed.rate, parsed.timeout, _say)
    if parsed.cancel:
        move.stop()
        return 0
    move.refuse_leaving_target()
    try:
        return _run_migration(move, parsed)
    except BaseException:
        # Stop both engines, even after Ctrl-C. Chunks that were moved stay, so the next migration skips them.
        move.stop()
        raise


def _run_migration(move: Move, parsed: argparse.Namespace) -> int:
    expected = move.look()
    _say(expected.words())
    may_go_on = expected.pays or parsed.anyway
    if not may_go_on and not parsed.dry_run:
        _say("nothing was moved; to move the cache nevertheless, use --anyway")
    reports = [move.hand_down(), move.warm_up()] if may_go_on and not parsed.dry_run else []
    if parsed.output:
        work = [report.model_dump(mode="json", by_alias=True, exclude={"prompts"}) for report in reports]
        document = {"estimate": dataclasses.asdict(expected) | {"pays": expected.pays}, "work": work}
        print(json.dumps(document, indent=1))
    elif reports:
        print("\n".join(_fit_to_show(migration_table(reports))))
    return 0 if may_go_on else 1


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr)


def _print_salt(key: bytes, parsed: argparse.Namespace) -> int:
    print(tenant_salt(key, parsed.tenant, parsed.client_salt))
    return 0


def _fit_to_show(lines: Iterable[str]) -> list[str]:
    """Returns the lines without control characters, because lines may contain texts from other users."""
    return [printable(line) for line in lines]
