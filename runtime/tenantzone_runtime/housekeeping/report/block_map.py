"""Makes the block map, a picture of the use of an engine's blocks, while the engine runs.

No step waits for the map, because the code that makes it takes no lock for the blocks, and pauses often. The lists of
blocks are read in slices, which Python copies atomically, and each block is read once. So a block that changes
meanwhile is shown with its old state or its new state, never with a mixture.
"""

import time
from collections import Counter
from collections.abc import Callable
from itertools import islice

from tenantzone_contract.cache.blocks import BlockKind, BlockMap, BlockUse
from tenantzone_contract.reports.report import EngineReport
from tenantzone_runtime.housekeeping.engine import ServedEngine
from tenantzone_runtime.housekeeping.report.copying import copy_loans, held
from tenantzone_runtime.housekeeping.report.picture import Picture
from tenantzone_runtime.housekeeping.turns import in_turns
from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.model.zone import Zone

Kind = tuple[Zone | None, BlockUse, bool]

_BLOCKS_AT_ONCE = 1000
"""Number of blocks to read between two pauses. Reading them takes some tenths of a millisecond."""


def take_block_map(engine: ServedEngine, report: EngineReport, cells: int) -> BlockMap:
    """Returns the map of an engine's blocks.

    Args:
        engine: the engine of the blocks.
        report: the engine's newest report, for its loans.
        cells: the maximum number of cells of the map.
    """
    borrowed = Counter[str]()
    for loan in report.loans:
        borrowed[loan.borrower] += loan.blocks
    reader = _Reader(engine.tenancy.ledger, borrowed, engine.use_of_unowned)
    return _taken(reader, engine.block_ids, report.pod, cells)


def take_tier_map(engine: ServedEngine, report: EngineReport, name: str, cells: int) -> BlockMap | None:
    """Returns the map of the zones' chunks in a tier; None if the engine has no tier with this name.

    Args:
        engine: the engine of the tier.
        report: the engine's newest report, for the name of the pod.
        name: the name of the tier.
        cells: the maximum number of cells of the map.
    """
    tier = next((served.tier for served in engine.tiers if served.tier.name == name), None)
    if tier is None:
        return None
    with held(engine.zone_lock):
        loans = list(tier.tenancy.loans)
    borrowed = Counter[str]()
    for loan in copy_loans(engine, loans):
        borrowed[loan.borrower.spec.tenant] += loan.blocks
    picture = _taken(_Reader(tier.ledger, borrowed, _is_free), range(tier.chunk_count), report.pod, cells)
    return picture.model_copy(update={"tier": tier.name})


def _is_free(chunk_id: int) -> BlockUse:
    return "free"


def _taken(reader: "_Reader", block_ids: range, pod: str, cells: int) -> BlockMap:
    blocks_per_cell = max(1, -(-len(block_ids) // cells))
    picture = Picture[Kind]()
    for firsts in in_turns(block_ids[::blocks_per_cell], max(1, _BLOCKS_AT_ONCE // blocks_per_cell)):
        for first in firsts:
            picture.add_cell(reader.kinds(first, min(first + blocks_per_cell, block_ids.stop)))
    return _described(picture, pod, len(block_ids), blocks_per_cell)


def _described(picture: Picture[Kind], pod: str, capacity: int, blocks_per_cell: int) -> BlockMap:
    shown = {kind: index for index, kind in enumerate(dict.fromkeys(kind for kind, _ in picture.runs))}
    return BlockMap(
        pod=pod,
        capacity_blocks=capacity,
        blocks_per_cell=blocks_per_cell,
        kinds=tuple(
            BlockKind(
                tenant=zone.spec.tenant if zone is not None else None,
                zone=zone.spec.name if zone is not None else None,
                use=use,
                borrowed=borrowed,
                blocks=picture.blocks[zone, use, borrowed],
            )
            for zone, use, borrowed in shown
        ),
        runs=tuple((shown[kind], cells) for kind, cells in picture.runs),
        taken_unix_time=time.time(),
    )


class _Reader:
    """Determines the current kind of each block.

    Args:
        ledger: the ledger of the blocks.
        borrowed: the number of blocks that each tenant has borrowed.
        use_of_unowned: returns the use of a block that belongs to no zone.
    """

    def __init__(self, ledger: Ledger, borrowed: Counter[str], use_of_unowned: Callable[[int], BlockUse]) -> None:
        self._use_of_unowned = use_of_unowned
        self._owner = ledger.owner
        self._order_of = ledger.links.order_of
        self._first_to_go: set[int] = set()
        self._borrowed_in_use: dict[Zone, int] = {}
        for tenant, count in borrowed.items():
            zone = ledger.zones.get(tenant)
            if zone is not None:
                self._choose(zone, count)

    def _choose(self, zone: Zone, count: int) -> None:
        # The engine may reorder the blocks during the iteration. Then the iteration may end early, or continue in
        # another zone's blocks. So read at most ``count`` blocks. `_kind` checks each block again.
        chosen = set[int]()
        for ids in in_turns(islice(zone.cached, count), _BLOCKS_AT_ONCE):
            chosen.update(ids)
        self._first_to_go |= chosen
        self._borrowed_in_use[zone] = max(0, count - len(zone.cached))

    def kinds(self, first: int, last: int) -> Counter[Kind]:
        """Returns the number of blocks of each kind among the blocks ``first`` to ``last - 1``."""
        ids = range(first, last)
        return Counter(map(self._kind, ids, self._owner[first:last], self._order_of[first:last]))

    def _kind(self, block_id: int, zone: Zone | None, order: object) -> Kind:
        if zone is None:
            return None, self._use_of_unowned(block_id), False
        if order is zone.cached:
            return zone, "cached", block_id in self._first_to_go
        left = self._borrowed_in_use.get(zone, 0)
        if left:
            self._borrowed_in_use[zone] = left - 1
        return zone, "in_use", left > 0
