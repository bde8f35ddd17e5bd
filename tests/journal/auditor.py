"""Follows each zone's held blocks by a journal's records alone, as docs/journal.md describes for auditors."""

from collections import Counter
from collections.abc import Iterable
from typing import Any


class Auditor:
    """Reads records in order.

    Attributes:
        held: blocks that each zone holds, by its tenant; those that hold none are left out.
    """

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        self._evicted: Counter[str] = Counter()

    def read(self, records: Iterable[dict[str, Any]]) -> None:
        for record in records:
            match record["kind"]:
                case "started":
                    self.held, self._evicted = {}, Counter()
                case "evicted":
                    self._evicted[record["zone"]] += record["blocks"]
                case "balance":
                    self._balance(record)
        assert not +self._evicted, "blocks were evicted from zones that have no balance"

    def _balance(self, record: dict[str, Any]) -> None:
        zone = record["zone"]
        expected = self.held.pop(zone, 0) + record["granted"] - record["released"] - self._evicted.pop(zone, 0)
        assert record["held"] == expected, f"record {record['seq']} of zone {zone} does not add up"
        assert 0 <= record["aboveReservation"] <= record["granted"]
        if expected:
            self.held[zone] = expected
