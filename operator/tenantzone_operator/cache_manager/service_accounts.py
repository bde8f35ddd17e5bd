"""Which pool's engines show the tokens of which service account; pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from tenantzone_operator.kube.resources import Pool
from tenantzone_operator.kube.store import Key

TAKEN: Final = "another pool, {other}, names the service account {account} before it; give its engines one of their own"
MISSING: Final = "it does not name the service account of its engines in spec.tiers.manager"


def service_accounts(pools: Iterable[Pool]) -> tuple[dict[str, str], dict[Key, str]]:
    """Each service account's pool, as NAMESPACE/NAME both, and why other pools have none.

    Of two pools that name one service account the older has it: else each could touch the other's blocks.
    """
    owners: dict[str, str] = {}
    problems: dict[Key, str] = {}
    for pool in sorted(pools, key=lambda each: each.meta.age_order):
        key = (pool.meta.namespace, pool.meta.name)
        if pool.meta.deleting:
            continue
        if not pool.service_account:
            problems[key] = MISSING
            continue
        account = f"{pool.meta.namespace}/{pool.service_account}"
        if account in owners:
            problems[key] = TAKEN.format(other=owners[account], account=account)
        else:
            owners[account] = "/".join(key)
    return owners, problems


def unresolved(wanted: Iterable[Key], pools: Iterable[Pool], problems: Mapping[Key, str]) -> list[str]:
    """Why pools that a group names can't store anything in it yet, one line each."""
    there = {(pool.meta.namespace, pool.meta.name) for pool in pools if not pool.meta.deleting}
    lines = []
    for key in wanted:
        if key not in there:
            lines.append(f"there is no ZonePool {'/'.join(key)}")
        elif key in problems:
            lines.append(f"ZonePool {'/'.join(key)}: {problems[key]}")
    return lines
