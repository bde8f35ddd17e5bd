"""The bill, against a model that knows for each single use when it was written."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.journal.bill import Amounts, Period, make_bill, time_of
from tenantzone_runtime.journal.reading import BrokenJournalError, NoJournalError
from tenantzone_runtime.journal.record import BEFORE_FIRST, JournalEvent, Started, encode, link_of, parse
from tenantzone_runtime.zones.audit.events import LoanUsage, TierUsage, Usage
from tests.journal.journals import balance, put, written_with

ZONES = ["acme", "burst"]


def moment(second: float | None) -> datetime | None:
    return None if second is None else datetime.fromtimestamp(second, UTC)


def period(begin: float | None = None, end: float | None = None) -> Period:
    return Period(moment(begin), moment(end))


def usage(zone: str, since: float, used: Amounts) -> Usage:
    tokens = used.prompt_tokens, used.cached_tokens, used.generation_tokens
    computed = used.computed_first_tokens, used.recomputed_tokens, used.rejected_draft_tokens
    return Usage(zone, since, used.block_seconds, *tokens, *computed, used.loaded_tokens, used.hit_tokens)


@dataclass
class Engine:
    """A pod: writes a journal, restarts, and notes each single use with the second in which a record first held it."""

    pod: str
    lines: list[bytes] = field(default_factory=list)
    written: list[tuple[str, int, Amounts]] = field(default_factory=list)
    """Zone, second, and the amounts since the previous record of the same run."""
    counters: dict[str, tuple[float, Amounts]] = field(default_factory=dict)
    open: dict[str, Amounts] = field(default_factory=dict)
    since: int = 0

    def record(self, second: int, event: JournalEvent) -> None:
        after = link_of(parse(self.lines[-1])) if self.lines else BEFORE_FIRST
        line, _ = encode(event, after, engine=f"{self.pod}@{self.since}", at=float(second), offset=0.0)
        self.lines.append(line)

    def restart(self, second: int) -> None:
        self.since, self.counters, self.open = second, {}, {}
        self.record(second, Started("0.32.0", 1000, 16))

    def use(self, second: int, zone: str, used: Amounts) -> None:
        since, before = self.counters.get(zone, (second + 0.5, Amounts()))
        self.counters[zone] = since, before + used
        self.open[zone] = self.open.get(zone, Amounts()) + used

    def remove(self, zone: str) -> None:
        self.counters.pop(zone, None)
        self.open.pop(zone, None)

    def write(self, second: int, zone: str) -> None:
        if zone in self.counters:
            self.record(second, usage(zone, *self.counters[zone]))
            self.written.append((zone, second, self.open.pop(zone, Amounts())))


AMOUNTS = st.builds(Amounts, *[st.integers(0, 5_000)] * 9)
DEEDS = st.lists(
    st.tuples(
        st.sampled_from(["use", "use", "write", "write", "remove", "restart", "pass"]),
        st.integers(0, 1),
        st.sampled_from(ZONES),
        AMOUNTS,
    ),
    max_size=60,
)


def play(deeds) -> list[Engine]:
    """Plays each deed a second later, so that a removed zone that comes back is distinct from its earlier self."""
    engines = [Engine("engine-0"), Engine("engine-1")]
    for engine in engines:
        engine.restart(0)
    for second, (deed, number, zone, amounts) in enumerate(deeds, start=1):
        match deed:
            case "use":
                engines[number].use(second, zone, amounts)
            case "write":
                engines[number].write(second, zone)
            case "remove":
                engines[number].remove(zone)
            case "restart":
                engines[number].restart(second)
    return engines


def expected(engines: list[Engine], begin: int, end: int) -> dict[str, Amounts]:
    sums: dict[str, Amounts] = {}
    for engine in engines:
        for zone, second, used in engine.written:
            if begin <= second < end:
                sums[zone] = sums.get(zone, Amounts()) + used
    return {zone: used for zone, used in sums.items() if used != Amounts()}


def billed(folders: list[Path], when: Period) -> dict[str, Amounts]:
    return {zone: used for zone, used in make_bill(folders, when).zones.items() if used != Amounts()}


@given(DEEDS, st.integers(0, 61), st.integers(0, 61))
def test_a_bill_is_the_sum_of_what_was_written_down_in_its_period(deeds, begin, length):
    engines = play(deeds)
    with TemporaryDirectory() as folder:
        folders = [put(Path(folder) / engine.pod, engine.lines) for engine in engines]
        assert billed(folders, period(begin, begin + length)) == expected(engines, begin, begin + length)
        assert billed(folders, period()) == expected(engines, 0, 1000)
        assert billed(folders * 2, period()) == expected(engines, 0, 1000), "a folder given twice counts once"


@given(DEEDS, st.lists(st.integers(0, 61), min_size=1, max_size=5))
def test_periods_that_follow_one_another_add_up(deeds, bounds):
    bounds = [None, *sorted(bounds), None]
    with TemporaryDirectory() as folder:
        folders = [put(Path(folder) / engine.pod, engine.lines) for engine in play(deeds)]
        parts = [make_bill(folders, period(*pair)).zones for pair in pairwise(bounds)]
        for zone, whole in make_bill(folders, period()).zones.items():
            assert sum((part.get(zone, Amounts()) for part in parts), Amounts()) == whole


@given(DEEDS, st.data())
def test_a_record_that_was_lost_takes_no_usage_with_it(deeds, data):
    deeds = [deed for deed in deeds if deed[0] in ("use", "write")]
    fewer = [deed for deed in deeds if deed[0] == "use" or data.draw(st.booleans())]
    last = [("write", number, zone, Amounts()) for number in (0, 1) for zone in ZONES]
    with TemporaryDirectory() as folder:
        all_zones = []
        for played in (play([*deeds, *last]), play([*fewer, *last])):
            folders = [put(Path(folder) / engine.pod, engine.lines) for engine in played]
            all_zones.append(make_bill(folders, period()).zones)
        assert all_zones[0] == all_zones[1]


@given(DEEDS, st.integers(0, 30), st.integers(0, 61))
def test_without_its_oldest_files_a_journal_never_bills_what_they_held(deeds, gone, begin):
    (engine, _) = play(deeds)
    gone = min(gone, len(engine.lines) - 1)
    held = expected([engine], begin, 1000)
    with TemporaryDirectory() as folder:
        put(Path(folder), engine.lines[gone:])
        oldest = time_of(parse(engine.lines[gone])["time"]).timestamp()
        bill = make_bill([Path(folder)], period(begin))
        for zone, used in bill.zones.items():
            assert used.prompt_tokens <= held.get(zone, Amounts()).prompt_tokens
            assert used.block_milliseconds <= held.get(zone, Amounts()).block_milliseconds
        if gone and begin <= oldest:
            assert "older files were deleted" in bill.warnings[-1]
        if not gone:
            assert (billed([Path(folder)], period(begin)), bill.warnings) == (held, [])


def journal(folder: Path, *events: tuple[int, JournalEvent]) -> Path:
    engine = Engine(folder.name)
    for second, event in events:
        engine.record(second, event)
    return put(folder, engine.lines)


def used(prompt_tokens: int) -> Amounts:
    return Amounts(1000 * prompt_tokens, prompt_tokens, 0, 0)


def test_a_record_on_the_boundary_belongs_to_the_later_period(tmp_path):
    folder = journal(tmp_path, (10, usage("acme", 0.0, used(1))), (20, usage("acme", 0.0, used(5))))
    assert make_bill([folder], period(0, 20)).zones == {"acme": used(1)}
    assert make_bill([folder], period(20, 30)).zones == {"acme": used(4)}


def test_a_zone_that_came_back_counts_from_zero_again(tmp_path):
    folder = journal(tmp_path, (10, usage("acme", 0.0, used(5))), (20, usage("acme", 11.0, used(3))))
    assert make_bill([folder], period()).zones == {"acme": used(8)}
    assert make_bill([folder], period(15)).zones == {"acme": used(3)}


def test_loans_are_billed_by_lender_and_borrower(tmp_path):
    events = [(10, LoanUsage("acme", "burst", 0.0, 2.5)), (20, LoanUsage("acme", "burst", 0.0, 4.0))]
    folder = journal(tmp_path, *events, (20, LoanUsage("burst", "acme", 0.0, 1.125)))
    bill = make_bill([folder], period())
    assert {pair: lent.block_seconds for pair, lent in bill.loans.items()} == {
        ("acme", "burst"): 4.0,
        ("burst", "acme"): 1.125,
    }
    assert make_bill([folder], period(15)).loans["acme", "burst"].block_seconds == 1.5


def test_loans_of_the_same_two_that_follow_one_another_add_up(tmp_path):
    events = [(10, LoanUsage("acme", "burst", 0.0, 2.5)), (20, LoanUsage("acme", "burst", 12.0, 1.0))]
    folder = journal(tmp_path, *events, (30, LoanUsage("acme", "burst", 25.0, 4.0)))
    assert make_bill([folder], period()).loans["acme", "burst"].block_seconds == 7.5
    assert make_bill([folder], period(15, 25)).loans["acme", "burst"].block_seconds == 1.0


def test_tiers_are_billed_by_zone_and_tier(tmp_path):
    events = [(10, TierUsage("acme", "cpu", 0.0, 2e12)), (20, TierUsage("acme", "cpu", 0.0, 2e12 + 0.5))]
    others = [(20, TierUsage("acme", "disk", 0.0, 7.0)), (20, TierUsage("burst", "cpu", 0.0, 9.0))]
    folder = journal(tmp_path, (10, usage("acme", 0.0, used(1))), *events, *others)
    bill = make_bill([folder], period())
    assert {pair: amounts.byte_seconds for pair, amounts in bill.tiers.items()} == {
        ("acme", "cpu"): 2e12 + 0.5,
        ("acme", "disk"): 7.0,
        ("burst", "cpu"): 9.0,
    }
    assert (bill.zones, bill.loans) == ({"acme": used(1)}, {})
    assert make_bill([folder], period(15)).tiers["acme", "cpu"].byte_seconds == 0.5


def test_what_an_older_file_billed_is_not_billed_again_when_it_is_gone(tmp_path):
    folder = journal(tmp_path, *[(10 * number, usage("acme", 0.0, used(number))) for number in range(1, 6)])
    put(folder, (folder / "journal-00000001.jsonl").read_bytes().splitlines(keepends=True)[2:])
    bill = make_bill([folder], period())
    assert bill.zones == {"acme": used(2)}
    assert len(bill.warnings) == 2


def test_an_engine_whose_start_is_kept_is_billed_from_zero(tmp_path):
    first = [(10, balance("acme", 1)), (20, Started("0.32.0", 1000, 16)), (30, usage("acme", 5.0, used(4)))]
    folder = journal(tmp_path, *first)
    put(folder, (folder / "journal-00000001.jsonl").read_bytes().splitlines(keepends=True)[1:])
    assert make_bill([folder], period(15)).zones == {"acme": used(4)}


def test_a_zone_that_came_after_the_oldest_record_is_billed_from_zero(tmp_path):
    folder = journal(tmp_path, (10, balance("acme", 1)), (20, balance("acme", 1)), (30, usage("acme", 25.0, used(4))))
    put(folder, (folder / "journal-00000001.jsonl").read_bytes().splitlines(keepends=True)[1:])
    assert make_bill([folder], period(15)).zones == {"acme": used(4)}


def test_a_tenants_zones_on_two_engines_add_up_even_if_they_came_at_the_same_time(tmp_path):
    folders = [journal(tmp_path / name, (10, usage("acme", 0.0, used(4)))) for name in ("engine-0", "engine-1")]
    assert make_bill(folders, period()).zones == {"acme": used(8)}


def test_an_older_copy_that_is_given_too_changes_nothing(tmp_path):
    events = [(10, usage("acme", 0.0, used(1))), (20, usage("acme", 0.0, used(5)))]
    live = journal(tmp_path / "live", *events)
    lines = (live / "journal-00000001.jsonl").read_bytes().splitlines(keepends=True)
    copy = put(tmp_path / "copy", lines[:1])
    for folders in ([live, copy], [copy, live]):
        assert make_bill(folders, period()).zones == {"acme": used(5)}


def test_an_archive_of_the_older_files_makes_a_journal_whole(tmp_path):
    whole = journal(tmp_path / "whole", *[(10 * number, usage("acme", 0.0, used(number))) for number in range(1, 6)])
    lines = (whole / "journal-00000001.jsonl").read_bytes().splitlines(keepends=True)
    archive, live = put(tmp_path / "archive", lines[:3]), put(tmp_path / "live", lines[3:])
    assert make_bill([live, archive], period()).zones == {"acme": used(5)}


def test_the_line_that_is_being_written_is_left_out_with_a_word(tmp_path):
    folder = journal(tmp_path, (10, usage("acme", 0.0, used(1))), (20, usage("acme", 0.0, used(5))))
    path = folder / "journal-00000001.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    bill = make_bill([folder], period())
    assert bill.zones == {"acme": used(1)}
    assert "the last line is ignored" in bill.warnings[0]


def test_a_journal_that_does_not_hold_is_not_billed(tmp_path):
    folder = journal(tmp_path, (10, usage("acme", 0.0, used(1))), (20, usage("acme", 0.0, used(5))))
    path = folder / "journal-00000001.jsonl"
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(written_with(first, promptTokens=9) + second)
    with pytest.raises(BrokenJournalError, match="record 0"):
        make_bill([folder], period())


def test_a_folder_without_a_journal_is_no_empty_bill(tmp_path):
    with pytest.raises(NoJournalError):
        make_bill([tmp_path], period())
