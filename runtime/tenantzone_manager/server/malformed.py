"""Logs malformed requests, but only one for each caller, so that no caller can flood the log."""

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
        """Names of the authenticated callers that have sent a malformed request."""

    @contextlib.contextmanager
    def noted(self, call: str, caller: Caller) -> Iterator[None]:
        """Run the ``with`` block, which decodes a request. If the request is malformed, refuse it and log the error.

        Args:
            call: name of the call.
            caller: caller of the request.

        Raises:
            ValueError: the request is malformed.
        """
        try:
            yield
        except msgspec.ValidationError:
            # Do not log a request that is well-formed but has an invalid value.
            raise
        except (msgspec.DecodeError, DecodeError) as error:
            if caller.name not in self._callers:
                self._callers.add(caller.name)
                _log.warning(
                    "%s sent a malformed %s request: %s. Further malformed requests of this caller are refused, but "
                    "not logged.",
                    caller.name,
                    call,
                    error,
                )
            raise ValueError(f"the request is not a valid {call} message: {error}") from error
