"""Computes each zone's usage in a period from journals alone.

Usage records contain counters, which start at zero when a zone is added and only grow. A run is the life of one zone's
counters, identified by engine, zone and ``countingSince``. The usage of a run in a period is the counter's last value
in the period minus its last value before the period. Intervals are not split: **the usage between two records belongs
to the period in which the second record was written.** So the bills of consecutive periods add up exactly. If a record
is lost, no usage is lost, because the next record of the run includes that usage.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from sys import intern
from typing import Any, Final

from tenantzone_runtime.journal.progress import Progress
from tenantzone_runtime.journal.reading import BrokenJournalError, EndCutOffError, NoJournalError, read_journal
from tenantzone_runtime.journal.record import Started
from tenantzone_runtime.zones.audit.events import LoanUsage, TierUsage, Usage

_THOUSAND: Final = 1000
_TOKENS: Final = (
    *("promptTokens", "cachedTokens", "generationTokens"),
    *("computedFirstTokens", "recomputedTokens", "rejectedDraftTokens", "loadedTokens", "hitTokens"),
)
"""Token counters of a usage record, in the order of `Amounts`."""


@dataclass(frozen=True, slots=True, order=True)
class Amounts:
    """Amounts of usage. Times are integers in thousandths of a second, so that sums are exact."""

    block_milliseconds: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generation_tokens: int = 0
    computed_first_tokens: int = 0
    recomputed_tokens: int = 0
    rejected_draft_tokens: int = 0
    loaded_tokens: int = 0
    hit_tokens: int = 0
    byte_milliseconds: int = 0
    """Bytes held in a tier, times milliseconds."""

    @property
    def block_seconds(self) -> float:
        return self.block_milliseconds / _THOUSAND

    @property
    def byte_seconds(self) -> float:
        return self.byte_milliseconds / _THOUSAND

    def __add__(self, other: "Amounts") -> "Amounts":
        return Amounts(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def __sub__(self, other: "Amounts") -> "Amounts":
        return Amounts(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True, slots=True)
class Period:
    """A period of time from ``begin`` (inclusive) to ``end`` (exclusive); None for no bound."""

    begin: datetime | None = None
    end: datetime | None = None


Who = tuple[str, ...]
"""The kind of a usage record, followed by its names: the zone, the lender and borrower, or the zone and tier."""


@dataclass(slots=True)
class _Run:
    """One run of the counters of a zone, a loan, or a zone's share of a tier, as found in the records read so far.

    Counters only grow, so the larger of two values is the later value.
    """

    from_zero: bool = False
    """Whether the journals contain all records of the run, so that the counters start at zero."""
    first: Amounts | None = None
    """The counters in the run's first remaining record."""
    before: Amounts | None = None
    """The counters in the last record before the period; None if there is no such record."""
    last: Amounts = Amounts()
    """The counters in the last record of the period."""

    def used(self) -> Amounts:
        return self.last - (self.before or self.base)

    @property
    def base(self) -> Amounts:
        """The counters at the beginning of the remaining records; 0 if no record of the run was deleted.

        If records were deleted, the usage in them is not billed, because earlier bills may already include it.
        """
        return Amounts() if self.from_zero or self.first is None else self.first

    def take(self, amounts: Amounts, *, before_period: bool, from_zero: bool) -> None:
        self.from_zero |= from_zero
        self.first = min(self.first or amounts, amounts)
        self.last = max(self.last, amounts)
        if before_period:
            self.before = max(self.before or amounts, amounts)


@dataclass(slots=True)
class Source:
    """A journal from which a bill is made."""

    folder: Path
    records: int = 0
    head: str = ""
    """Hash of the last record that was read. It identifies the state of the journal on which the bill is based."""


@dataclass(slots=True)
class Bill:
    """The usage of each zone and each borrower in a period."""

    period: Period
    sources: list[Source] = field(default_factory=list)
    zones: dict[str, Amounts] = field(default_factory=dict)
    loans: dict[tuple[str, str], Amounts] = field(default_factory=dict)
    """Lent block-seconds, by lender and borrower. The borrower's block-seconds in ``zones`` include them."""
    tiers: dict[tuple[str, str], Amounts] = field(default_factory=dict)
    """Byte-seconds by zone and tier."""
    warnings: list[str] = field(default_factory=list)
    """Messages about usage that could not be billed."""


def make_bill(folders: Iterable[Path], period: Period) -> Bill:
    """Make a bill from journals, and print the progress to standard error.

    Usage is counted once, even if a folder is given twice.

    Raises:
        NoJournalError: a folder has no journal.
        BrokenJournalError: a journal fails verification.
        OSError: a file can't be read.
    """
    bill = Bill(period)
    runs: dict[tuple[str, str, Who], _Run] = {}
    for folder in folders:
        _read(folder, bill, runs)
    for engine in sorted({engine for (engine, _, _), run in runs.items() if run.before is None and not run.from_zero}):
        bill.warnings.append(
            f"{engine}: usage before the engine's first record is not billed, because older files were deleted"
        )
    sums = dict[Who, Amounts]()
    for (_, _, who), run in sorted(runs.items(), key=lambda item: item[0][2]):
        sums[who] = sums.get(who, Amounts()) + run.used()
    for (kind, *names), amounts in sums.items():
        match kind, names:
            case Usage.kind, [zone]:
                bill.zones[zone] = amounts
            case LoanUsage.kind, [lender, borrower]:
                bill.loans[lender, borrower] = amounts
            case TierUsage.kind, [zone, tier]:
                bill.tiers[zone, tier] = amounts
    return bill


def _read(folder: Path, bill: Bill, runs: dict[tuple[str, str, Who], _Run]) -> None:
    source = Source(folder)
    kept: _Kept | None = None
    progress = Progress(folder)
    try:
        for entry in read_journal(folder):
            progress.at(entry)
            source.records, source.head = source.records + 1, entry.link.hash
            try:
                kept = kept or _Kept(time_of(entry.record["time"]), whole=entry.link.seq == 0)
                _take(entry.record, bill.period, runs, kept)
            except (KeyError, TypeError, ValueError) as error:
                named = f"record {entry.link.seq}"
                problem = f"the record is not as an engine writes it: {error!r}"
                raise BrokenJournalError(entry.place, named, problem) from error
    except EndCutOffError as error:
        bill.warnings.append(f"{folder}: the last line is ignored: {error}")
    if kept is None:
        raise NoJournalError(f"the journal in {folder} has no records")
    if not kept.whole and (bill.period.begin is None or bill.period.begin <= kept.begin):
        bill.warnings.append(
            f"{folder}: the journal begins at {kept.begin}; usage before that is not billed, because older files were "
            "deleted"
        )
    bill.sources.append(source)


@dataclass(slots=True)
class _Kept:
    """The remaining part of a journal. Older files may have been deleted."""

    begin: datetime
    """Time of the first remaining record."""
    whole: bool
    """Whether no file was deleted."""
    started: set[str] = field(default_factory=set)
    """Names of the engine runs whose first record remains."""

    def reaches(self, engine: str, since: datetime) -> bool:
        """Returns whether the journal still has all records that an engine run has written since this time."""
        return self.whole or engine in self.started or since >= self.begin


def _take(record: dict[str, Any], period: Period, runs: dict[tuple[str, str, Who], _Run], kept: _Kept) -> None:
    # Intern the names to save memory, because a month may have many records with the same names.
    engine, at = intern(record["engine"]), time_of(record["time"])
    if record["kind"] == Started.kind:
        kept.started.add(engine)
    counted = _counted(record)
    if counted is None or (period.end and at >= period.end):
        return
    who, amounts = counted
    since = str(record["countingSince"])
    run = runs.setdefault((engine, since, who), _Run())
    run.take(
        amounts,
        before_period=period.begin is not None and at < period.begin,
        from_zero=kept.reaches(engine, time_of(since)),
    )


def _counted(record: dict[str, Any]) -> tuple[Who, Amounts] | None:
    match record["kind"]:
        case Usage.kind:
            tokens = (int(record[name]) for name in _TOKENS)
            return (Usage.kind, intern(record["zone"])), Amounts(_thousandths(record["blockSeconds"]), *tokens)
        case LoanUsage.kind:
            who = LoanUsage.kind, intern(record["lender"]), intern(record["borrower"])
            return who, Amounts(_thousandths(record["blockSeconds"]))
        case TierUsage.kind:
            who = TierUsage.kind, intern(record["zone"]), intern(record["tier"])
            return who, Amounts(byte_milliseconds=_thousandths(record["byteSeconds"]))
    return None


def _thousandths(value: Any) -> int:
    return round(float(value) * _THOUSAND)


def time_of(text: str) -> datetime:
    """Parse an RFC 3339 time or a date. A date means its midnight. A time without an offset is in UTC.

    Raises:
        ValueError: the text is neither a time nor a date.
    """
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
