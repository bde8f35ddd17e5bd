"""Orders to move a zone's cache, given at the admin ports of real engines."""

import httpx

from tenantzone_contract.cache.migration import MIGRATION_PATH, MigrationOrder, MigrationReport, parse_migration
from tests.engine.real_engine import ADMIN_PORT, RealEngine


def migrate(engine: RealEngine, what: str, **more: object) -> MigrationReport:
    """Gives an engine an order for acme's zone, and waits for its end. Returns the outcome."""
    order = MigrationOrder(order=what, tenant="acme", **more)
    body = order.model_dump_json(by_alias=True)
    reported = [
        parse_migration(
            httpx.post(f"http://{engine.address}:{ADMIN_PORT}{MIGRATION_PATH}", content=body, timeout=60).content
        )
    ]

    def is_over() -> bool:
        reported.append(parse_migration(engine.admin(f"{MIGRATION_PATH}?tenant=acme&prompts=true").content))
        return not reported[-1].is_running

    engine.wait(is_over, f"{what} is over", 60)
    assert reported[-1].state == "Done", reported[-1].problem
    return reported[-1]
