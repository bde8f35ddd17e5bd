"""The admin port's migration page, which starts and stops migrations of a zone's cache, and reports their progress."""

from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import parse_qs

from tenantzone_contract.cache.migration import (
    LONGEST_ORDER,
    PROMPTS_PARAMETER,
    TENANT_PARAMETER,
    MigrationError,
    MigrationOrder,
    MigrationReport,
    parse_order,
)

Page = tuple[HTTPStatus, str, bytes]
"""Status, content type and body."""

_TEXT = "text/plain; charset=utf-8"


class MigrationPage:
    """Answers requests about migrations.

    Args:
        do: begins or stops a migration; raises a :class:`MigrationError` if that is not possible.
        report: returns the progress of a tenant's migration. The second argument is whether to include recent prompts.
    """

    def __init__(self, do: Callable[[MigrationOrder], object], report: Callable[[str, bool], MigrationReport]) -> None:
        self._do, self._report = do, report

    def progress(self, query: str) -> Page:
        """Returns the answer to a request for the progress of a migration, with this query string."""
        asked = parse_qs(query)
        tenant = asked.get(TENANT_PARAMETER, [""])[-1]
        if not tenant:
            return HTTPStatus.BAD_REQUEST, _TEXT, f"name the zone's tenant with ?{TENANT_PARAMETER}=TENANT\n".encode()
        return self._tell(tenant, asked.get(PROMPTS_PARAMETER, [""])[-1] == "true")

    def ordered(self, body: bytes) -> Page:
        """Carry out the migration order in a request's body, and return the answer."""
        try:
            order = parse_order(body)
        except ValueError as error:
            return HTTPStatus.BAD_REQUEST, _TEXT, f"the body is not a valid migration order: {error}\n".encode()
        try:
            self._do(order)
        except MigrationError as error:
            return HTTPStatus.CONFLICT, _TEXT, f"{error}\n".encode()
        return self._tell(order.tenant, False)

    @staticmethod
    def refuse_length(length: str | None) -> Page | None:
        """Returns the answer that refuses an order with this ``Content-Length``; None if the length is valid."""
        if length is None or not (length.isascii() and length.isdigit()):
            return HTTPStatus.LENGTH_REQUIRED, _TEXT, b"the header Content-Length must state the order's length\n"
        if len(length) > len(str(LONGEST_ORDER)) or int(length) > LONGEST_ORDER:
            text = f"a migration order may have at most {LONGEST_ORDER:,} bytes\n"
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _TEXT, text.encode()
        return None

    def _tell(self, tenant: str, with_prompts: bool) -> Page:
        report = self._report(tenant, with_prompts)
        return HTTPStatus.OK, "application/json", report.model_dump_json(by_alias=True).encode()
