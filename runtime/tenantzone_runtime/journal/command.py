"""``tenantzone-runtime journal``: check an audit journal, and make a bill from it."""

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from tenantzone_runtime.journal.bill import Amounts, Bill, Period, make_bill, time_of
from tenantzone_runtime.journal.reading import BrokenJournalError, NoJournalError
from tenantzone_runtime.journal.verify import HeadNotFoundError, verify

_PROGRAM = "tenantzone-runtime journal"
_GIB: Final = 2**30


def main(arguments: Sequence[str]) -> None:
    """Run a subcommand of ``journal``. Exits with code 1 and a message if a journal is invalid or can't be read."""
    own = _parser().parse_args(arguments)
    try:
        own.run(own)
    except BrokenJournalError as error:
        sys.exit(f"{_PROGRAM}: the journal is broken: {error}")
    except (NoJournalError, HeadNotFoundError) as error:
        sys.exit(f"{_PROGRAM}: {error}")
    except OSError as error:
        sys.exit(f"{_PROGRAM}: {error.filename or 'the journal'} can't be read: {error.strerror}")


def _verify(own: argparse.Namespace) -> None:
    print("\n".join(verify(own.folder, own.head).lines()))


def _bill(own: argparse.Namespace) -> None:
    bill = make_bill(own.folders, Period(own.begin, own.end))
    for warning in bill.warnings:
        print(f"{_PROGRAM}: {warning}", file=sys.stderr)
    print(json.dumps(_as_json(bill), indent=2, ensure_ascii=False) if own.json else _as_table(bill))


def _as_json(bill: Bill) -> dict[str, object]:
    return {
        "from": bill.period.begin and bill.period.begin.isoformat(),
        "to": bill.period.end and bill.period.end.isoformat(),
        "zones": [{"zone": zone} | _amounts(amounts) for zone, amounts in bill.zones.items()],
        "loans": [
            {"lender": lender, "borrower": borrower, "blockSeconds": amounts.block_seconds}
            for (lender, borrower), amounts in bill.loans.items()
        ],
        "tiers": [
            {"zone": zone, "tier": tier, "byteSeconds": amounts.byte_seconds}
            for (zone, tier), amounts in bill.tiers.items()
        ],
        "journals": [
            {"folder": str(source.folder), "records": source.records, "head": source.head} for source in bill.sources
        ],
        "warnings": bill.warnings,
    }


def _amounts(amounts: Amounts) -> dict[str, float]:
    return {
        "blockSeconds": amounts.block_seconds,
        "promptTokens": amounts.prompt_tokens,
        "cachedTokens": amounts.cached_tokens,
        "generationTokens": amounts.generation_tokens,
        "computedFirstTokens": amounts.computed_first_tokens,
        "recomputedTokens": amounts.recomputed_tokens,
        "rejectedDraftTokens": amounts.rejected_draft_tokens,
        "loadedTokens": amounts.loaded_tokens,
        "hitTokens": amounts.hit_tokens,
    }


def _as_table(bill: Bill) -> str:
    zones: list[Sequence[str]] = [("zone", "block-seconds", "prompt tokens", "of them cached", "generation tokens")]
    processed: list[Sequence[str]] = [("zone", "computed first", "recomputed", "drafts rejected", "loaded", "hit")]
    for zone, used in bill.zones.items():
        tokens = used.prompt_tokens, used.cached_tokens, used.generation_tokens
        zones.append((zone, f"{used.block_seconds:,.3f}", *_numbers(*tokens)))
        computed = used.computed_first_tokens, used.recomputed_tokens, used.rejected_draft_tokens
        processed.append((zone, *_numbers(*computed, used.loaded_tokens, used.hit_tokens)))
    lines = [*_columns(zones, names=1), "", *_columns(processed, names=1)]
    if bill.loans:
        loans = [("lender", "borrower", "block-seconds lent")]
        loans += [(*pair, f"{used.block_seconds:,.3f}") for pair, used in bill.loans.items()]
        lines += ["", *_columns(loans, names=2)]
    if bill.tiers:
        tiers = [("zone", "tier", "GiB-seconds")]
        tiers += [(*pair, f"{used.byte_seconds / _GIB:,.3f}") for pair, used in bill.tiers.items()]
        lines += ["", *_columns(tiers, names=2)]
    return "\n".join(lines)


def _numbers(*numbers: int) -> list[str]:
    return [f"{number:,}" for number in numbers]


def _columns(rows: Sequence[Sequence[str]], *, names: int) -> list[str]:
    """Format rows as lines. The first ``names`` columns are left-aligned, and the other columns right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index < names else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _time(text: str) -> datetime:
    try:
        return time_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time; write it like 2026-11-01 or 2026-11-01T12:00:00Z"
        ) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=_PROGRAM, description=__doc__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check = commands.add_parser("verify", help="verify the chain of hashes, and name the first invalid record")
    check.add_argument("folder", type=Path, metavar="FOLDER", help="folder with the journal of one engine")
    check.add_argument("--head", metavar="HASH", help="hash of a record, noted earlier, that the chain must contain")
    check.set_defaults(run=_verify)
    bill = commands.add_parser("bill", help="add up the usage of each zone")
    bill.add_argument(
        "folders", type=Path, nargs="+", metavar="FOLDER", help="folders with journals, one for each engine"
    )
    bill.add_argument("--from", dest="begin", type=_time, metavar="TIME", help="start of the period (UTC)")
    bill.add_argument("--to", dest="end", type=_time, metavar="TIME", help="end of the period, exclusive (UTC)")
    bill.add_argument("--json", action="store_true", help="print JSON")
    bill.set_defaults(run=_bill)
    return parser
