"""Engines that move zones' caches as the tests say, behind the runtime's own admin server."""

from collections.abc import Sequence

from tenantzone_contract.cache.migration import MigrationOrder, MigrationReport, Prompt
from tenantzone_runtime.admin_port.admin import AdminServer
from tenantzone_runtime.admin_port.admin_access import AdminAccess
from tenantzone_runtime.admin_port.admin_migration import MigrationPage
from tests.cli.reports import engine_report

CHUNK_BYTES, CHUNK_TOKENS = 1000, 16


class MovingEngine:
    """An engine that completes an order when it has been polled twice.

    Args:
        name: the name of its pod.
        prompts: prompts that its zone has used and no storage has.
        speed: the prompt tokens that it computes per second.
        access: which callers are admitted; by default all.
    """

    def __init__(
        self, name: str, prompts: Sequence[Prompt], speed: float = 1.0, access: AdminAccess | None = None
    ) -> None:
        self.name, self.prompts, self.speed = name, tuple(prompts), speed
        self.orders: list[MigrationOrder] = []
        self.problem = ""
        self.never_ends = False
        self.is_handed_down = False
        self._access = access or AdminAccess(None)
        self._page: MigrationPage | None = MigrationPage(self._do, self._report)
        self._asked = 0
        self._serve()

    def _serve(self) -> None:
        self._server = AdminServer("127.0.0.1", 0, engine_report, access=self._access, migration=self._page)

    @property
    def port(self) -> int:
        return self._server.port

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def take_ability(self) -> None:
        """Removes its shared storages, and changes its port."""
        self.stop()
        self._page = None
        self._serve()
        self.start()

    def _do(self, order: MigrationOrder) -> None:
        self.orders.append(order)
        self._asked = 0
        self.is_handed_down |= order.order == "hand-down"

    def _report(self, tenant: str, with_prompts: bool) -> MigrationReport:
        self._asked += 1
        order = self.orders[-1] if self.orders else None
        work = None if order is None or order.order == "stop" else order.order
        is_over = self._asked > 2 and not self.never_ends
        state = "None" if work is None else "Failed" if is_over and self.problem else "Done" if is_over else "Running"
        prompts = order.prompts if order is not None and order.order == "warm-up" else self.prompts
        chunks = len({block for prompt in prompts for block in prompt})
        has_moved = is_over and work in ("hand-down", "warm-up")
        return MigrationReport(
            pod=self.name,
            tenant=tenant,
            work=work,
            state=state,
            problem=self.problem if is_over else "",
            chunk_bytes=CHUNK_BYTES,
            chunk_tokens=CHUNK_TOKENS,
            prompts_total=len(prompts),
            prompts_done=len(prompts) if has_moved else 0,
            moved=chunks if has_moved else 0,
            moved_bytes=chunks * CHUNK_BYTES if has_moved else 0,
            found=chunks if has_moved else 0,
            left=0 if has_moved or not is_over else chunks,
            prompt_tokens_per_second=self.speed,
            prompts=self.prompts if with_prompts else (),
        )
