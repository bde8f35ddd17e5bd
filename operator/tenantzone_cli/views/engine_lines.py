"""Pure functions that render those parts of ``explain`` that come from engines' reports."""

from collections.abc import Iterator, Mapping, Sequence

from tenantzone_cli.live import EngineAnswer
from tenantzone_cli.resources import Zone
from tenantzone_cli.table import duration, render, shown
from tenantzone_contract.quantity import shown_bytes
from tenantzone_contract.reports.latency_words import LATENCY_WORDS
from tenantzone_contract.reports.report import EngineReport, LoanReport
from tenantzone_contract.reports.summary import ZoneSummary
from tenantzone_contract.reports.zone_report import ZoneReport
from tenantzone_contract.text import printable

_WAITS: Mapping[str, str] = {
    "limit": "waits for blocks, because the zone's limit is in use; raise spec.limit, or wait",
    "reserved": "waits for blocks, because free blocks are reserved for other zones; raise spec.reserved, or let "
    "others lend more",
    "in_use": "waits for blocks that other requests use, until these requests end",
    "seats": "waits for a seat, because the engine runs its maximum of requests; reserve blocks or spec.seats, or "
    "raise --max-num-seqs",
    "tokens": "waits for tokens, because the zone's share of the steps is used, or a zone with a latency target needs "
    "them",
    "seat_limit": "waits for a seat, because the zone runs spec.seats.limit requests",
    "adapter": "waits for a LoRA adapter slot, because other adapters use all slots; set spec.reserved or "
    "spec.seats.reserved, or raise --max-loras",
    "grammar": "waits until the grammar of its structured output is compiled",
    "load": "waits until blocks of its prompt are looked up in a tier or copied from it",
    "encoder": "waits for room in the encoder, which other requests use or which is kept for another zone; set "
    "spec.reserved or spec.seats.reserved, or raise --max-num-batched-tokens",
}


def loan_lines(zone: Zone, answers: Sequence[EngineAnswer]) -> Iterator[str]:
    """Iterates over lines that say for each engine who uses the zone's reservation, and from whom the zone borrows."""
    lines = []
    for answer in answers:
        report = answer.zone(zone.name)
        lent, borrowed = answer.lent_by(zone.tenant), answer.borrowed_by(zone.tenant)
        if report is None or answer.report is None or not (report.reserved or lent or borrowed):
            continue
        clock = answer.report.published_unix_time
        lines.append(f"  {answer.pod}: {_standing(report)}")
        lines += [f"    lent to {loan.borrower}: {_terms(loan, clock)}" for loan in lent]
        lines += [f"    borrowed from {loan.lender}: {_terms(loan, clock)}" for loan in borrowed]
    if lines:
        yield "Reservation and loans"
        yield from lines


def _standing(report: ZoneReport) -> str:
    if not report.reserved:
        return "nothing is reserved"
    own = min(report.held, report.reserved)
    rest = max(0, report.reserved - own - report.lent)
    parts = f"the zone holds {own}, {report.lent} are lent, {rest} are not in use"
    return f"of {report.reserved} reserved blocks {parts}"


def _terms(loan: LoanReport, clock: float) -> str:
    """Returns a text with a loan's size, age and due time. ``clock`` is the report's time by the engine's clock."""
    since = f"{loan.blocks} blocks for {duration(clock - loan.since_unix_time)}"
    if loan.due_unix_time is None:
        return f"{since}, until the lender needs them"
    left = loan.due_unix_time - clock
    return f"{since}, due in {duration(left)}" if left > 0 else f"{since}, due {duration(-left)} ago"


def request_lines(zone: str, answers: Sequence[EngineAnswer]) -> Iterator[str]:
    """Iterates over lines with each engine's numbers of running and waiting requests, and why the next one waits."""
    lines = []
    for answer in answers:
        report = answer.zone(zone)
        if report is None or not (report.running_requests or report.waiting_requests):
            continue
        line = f"  {answer.pod}: {report.running_requests} running, {report.waiting_requests} waiting"
        reason = report.waits_for
        # Show unknown reasons as they are, because a newer engine may report reasons that this table lacks.
        lines.append(f"{line}: {_WAITS.get(reason, printable(reason))}" if reason is not None else line)
        if reason == "adapter" and answer.report is not None:
            lines += _slot_lines(answer.report)
        if reason == "encoder" and answer.report is not None:
            lines += _encoder_lines(answer.report)
    if lines:
        yield "Requests"
        yield from lines


def _slot_lines(report: EngineReport) -> Iterator[str]:
    """Iterates over lines that name the tenants that use the engine's adapter slots."""
    for used in report.adapters:
        tenants = ", ".join(map(printable, used.tenants)) or "requests that arrived before any zone was declared"
        yield f"    slot of {printable(used.adapter)}: used by {tenants}"
    free = report.adapter_slots - len(report.adapters)
    if free > 0:
        yield f"    {free} of {report.adapter_slots} slots are free"


def _encoder_lines(report: EngineReport) -> Iterator[str]:
    """Iterates over lines that name the tenants that use the engine's encoder cache."""
    for used in report.encoder_use:
        yield f"    encoder: {printable(used.tenant)} uses {used.embeddings} of {report.encoder_embeddings} embeddings"


def latency_lines(zone: str, answers: Sequence[EngineAnswer]) -> Iterator[str]:
    """Iterates over lines on the state of the zone's latency targets in each engine."""
    lines = []
    for answer in answers:
        report = answer.zone(zone)
        targets = None if report is None else report.latency
        if targets is None:
            continue
        for name, reported in (("tokenTime", targets.token_time), ("firstToken", targets.first_token)):
            if reported is not None:
                actual = "" if reported.actual_seconds is None else f"{_milliseconds(reported.actual_seconds)} of "
                reason = LATENCY_WORDS.get(reported.reason, printable(reported.reason))
                lines.append(f"  {answer.pod}: {name} {actual}{_milliseconds(reported.target_seconds)}: {reason}")
    if lines:
        yield "Latency targets (99th percentile of the last minute)"
        yield from lines


def tier_table(zone: str, answers: Sequence[EngineAnswer]) -> Iterator[str]:
    """Iterates over the lines of a table with the zone's amounts in each engine's tiers; empty without tiers."""
    rows = []
    for answer in answers:
        report = answer.zone(zone)
        problems = {tier.tier: tier.problem for tier in answer.report.tiers} if answer.report is not None else {}
        for reported in report.tiers if report is not None else ():
            amounts = map(shown_bytes, (reported.held_bytes, reported.reserved_bytes, reported.limit_bytes))
            counts = map(shown, (reported.hits, reported.evictions, reported.writes_refused, reported.corrupt))
            message = printable(problems.get(reported.tier, ""))
            if reported.awaited_bytes:
                message = f"too small by {shown_bytes(reported.awaited_bytes)} for the reservation"
            rows.append((f"  {answer.pod}", printable(reported.tier), *amounts, *counts, message))
    if rows:
        yield "Tiers below the engines' blocks: bytes, and chunks since the engine's start"
        headers = (
            "  ENGINE",
            "TIER",
            "HELD",
            "RESERVED",
            "LIMIT",
            "HITS",
            "EVICTIONS",
            "REFUSED",
            "CORRUPT",
            "MESSAGE",
        )
        yield from render(headers, rows)


def _milliseconds(seconds: float) -> str:
    return f"{round(1000 * seconds, 1):.12g} ms"


def engine_table(zone: Zone, answers: Sequence[EngineAnswer]) -> Iterator[str]:
    """Iterates over the lines of a table with the zone's amounts in each engine.

    An engine's row comes from the engine's report, or from the zone's status if the engine does not answer.
    """
    reports = {answer.pod: report for answer in answers if (report := answer.zone(zone.name)) is not None}
    rows = []
    for row in zone.engines:
        pod = str(row.get("pod"))
        report = reports.get(pod)
        if report is None and "held" not in row and not row.get("message"):
            continue
        summary = ZoneSummary.of([report]) if report is not None else ZoneSummary.read(row)
        amounts = (
            summary.reserved,
            summary.limit,
            summary.held,
            summary.in_use,
            summary.cached,
            summary.lent,
            summary.borrowed,
            summary.hit_percent,
            summary.recomputed_percent,
            summary.evictions,
        )
        acknowledged = "yes" if row.get("acknowledged") else "no"
        rows.append((f"  {pod}", acknowledged, shown(summary.state), *map(shown, amounts), str(row.get("message", ""))))
    if rows:
        headers = ("  ENGINE", "ACKNOWLEDGED", "STATE", "RESERVED", "LIMIT", "HELD", "IN-USE", "CACHED", "LENT")
        yield from render((*headers, "BORROWED", "HIT%", "RECOMPUTED%", "EVICTIONS", "MESSAGE"), rows)
