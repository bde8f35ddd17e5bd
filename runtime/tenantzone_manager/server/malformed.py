"""Requests that are no messages at all: they are logged once for each caller, so that none can fill the log."""

import contextlib
import logging
from collections.abc import Iterator

import msgspec
from google.protobuf.message import DecodeError

from tenantzone_manager.server.access import Caller

_log = logging.getLogger(__name__)


class MalformedRequests:
    """Refuses and logs the malformed requests of one protocol."""

    def __init__(self) -> None:
        self._callers: set[str] = set()
        """Who has sent one. Only names of known callers come here."""

    @contextlib.contextmanager
    def noted(self, call: str, caller: Caller) -> Iterator[None]:
        """Read a request within this.

        Args:
            call: its name.
            caller: who sent it.

        Raises:
            ValueError: the request is malformed.
        """
        try:
            yield
        except msgspec.ValidationError:
            # It is a message, and asks for what can't be.
            raise
        except (msgspec.DecodeError, DecodeError) as error:
            if caller.name not in self._callers:
                self._callers.add(caller.name)
                _log.warning(
                    "%s sent a malformed %s request: %s. Further ones of this caller are refused, and not logged.",
                    caller.name,
                    call,
                    error,
                )
            raise ValueError(f"the request is no message of {call}: {error}") from error
