"""Starts a manager with the settings from the command line."""

import argparse
import asyncio
import logging
import os
import resource
import sys
import threading
from collections.abc import Callable
from typing import Final

from tenantzone_contract.keys.renewed import Renewed
from tenantzone_contract.keys.tls import TlsFiles
from tenantzone_manager.app import STOP_SECONDS, AppSettings, run
from tenantzone_manager.catalog import Catalog
from tenantzone_manager.events.writer import EventSettings
from tenantzone_manager.index.backend import IndexUnavailable
from tenantzone_manager.index.meta_index import IndexSettings
from tenantzone_manager.manager import Settings
from tenantzone_manager.server.access import (
    Anyone,
    Authenticator,
    ReviewedTokens,
    StaticTokens,
    read_service_accounts,
    service_accounts,
)
from tenantzone_manager.server.token_review import ApiServerReview
from tenantzone_manager.timing import Timing

_log = logging.getLogger(__name__)

_END_SECONDS: Final = 25.0
"""Maximum number of seconds of a shutdown. Kubernetes kills the process 5 s later by default."""


def start(options: argparse.Namespace, *, owns_process: bool) -> None:
    """Run a manager until a signal ends it; exit if an option is invalid or the index can't be opened.

    Args:
        options: the command-line options.
        owns_process: whether to end the process even if a storage hangs, because nothing else runs in it.
    """
    _allow_connections()
    try:
        settings = _settings(options)
    except (ValueError, OSError) as error:
        sys.exit(_message(error, options))
    end_later = _end_later if owns_process else lambda _seconds, _message: None
    if message := asyncio.run(_serve(settings, options, end_later)):
        sys.exit(message)


async def _serve(settings: AppSettings, options: argparse.Namespace, end_later: Callable[[float, str], None]) -> str:
    """Run a manager. Returns the error because of which it ended; empty if a signal ended it."""
    message = ""
    try:
        await run(settings, stopping=lambda error: end_later(_END_SECONDS, _message(error, options)))
    except (ValueError, OSError, IndexUnavailable) as error:
        message = _message(error, options)
    end_later(STOP_SECONDS, message)
    return message


def _message(error: BaseException | None, options: argparse.Namespace) -> str:
    if error is None:
        return ""
    if isinstance(error, BlockingIOError):
        return (
            f"tenantzone-manager: another process has opened the index {options.index}; stop that process, or use "
            "Redis as the index of several managers"
        )
    return f"tenantzone-manager: {error}"


def _end_later(seconds: float, message: str) -> None:
    """End the process after some seconds, with exit code 1 if there is a message.

    Otherwise, a thread that waits for a hanging storage would keep the process alive, because Python joins all threads.
    """
    ending = threading.Timer(seconds, _end_process, (message,))
    ending.daemon = True
    ending.start()


def _end_process(message: str) -> None:
    _log.warning("the shutdown takes too long, most likely because a storage does not answer; the process ends now")
    logging.shutdown()
    if message:
        print(message, file=sys.stderr, flush=True)
    os._exit(1 if message else 0)


def _allow_connections() -> None:
    """Raise the soft limit of open files to the hard limit, because clients and storages need many connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _settings(options: argparse.Namespace) -> AppSettings:
    timing = Timing(lease=options.lease, write=options.write_timeout)
    index = IndexSettings(
        lock_shards=options.lock_shards,
        batch_size=options.batch_size,
        cached_records=options.search_cache,
        max_age_seconds=options.search_cache_max_age,
    )
    return AppSettings(
        index=options.index,
        http=options.listen,
        grpc=options.grpc,
        redis_prefix=options.redis_prefix,
        authenticator=_authenticator(options),
        tls=_tls(options),
        manager=Settings(timing, index, options.orphan_grace, _events(options), options.credentials),
    )


def _events(options: argparse.Namespace) -> EventSettings | None:
    return EventSettings(options.events, options.events_max_bytes, options.events_keep) if options.events else None


def _tls(options: argparse.Namespace) -> TlsFiles | None:
    certificate, key, client_ca = options.tls_cert_file, options.tls_private_key_file, options.client_ca_file
    if (certificate is None) != (key is None):
        raise ValueError("--tls-cert-file and --tls-private-key-file must be given together")
    if certificate is None and client_ca is not None:
        raise ValueError("--client-ca-file requires --tls-cert-file, because client certificates need TLS")
    return None if certificate is None else TlsFiles(certificate, key, client_ca)


def _authenticator(options: argparse.Namespace) -> Callable[[Catalog], Authenticator]:
    made: Authenticator = Anyone()
    if options.tokens:
        made = StaticTokens(options.tokens)
    if not options.service_accounts:
        return lambda _: made
    path = options.service_accounts
    fixed = Renewed([path], lambda: read_service_accounts(path), about="the service accounts")
    fixed.newest()
    review = ApiServerReview(options.api_server, options.api_server_credentials)
    return lambda catalog: ReviewedTokens(review, options.audience, service_accounts(fixed.newest, catalog))
