"""Random lives of adapter slots: zones keep overlapping requests for their adapters, and each zone gets its turns."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from itertools import takewhile
from random import Random

import pytest

from tenantzone_runtime.zones.model.zone import SeatQuota, Zone
from tenantzone_runtime.zones.resources.adapter_turns import TURN_STEPS
from tests.zones.core import Core
from tests.zones.small_engine import SmallEngine, Work

LIVES = 60
STEPS = 400
STEP_SECONDS = 0.1
LONGEST = 30
"""Steps of the longest request."""
SLACK = 3
"""Steps: one in which an adapter gives up its slot, and one in which a zone that lost its own slot may begin."""


@dataclass(eq=False)
class Stream:
    """Two requests of one zone for one adapter, replaced whenever one ends."""

    zone: Zone
    adapter: int | None
    begun: list[Work]
    waited: int = 0
    """Consecutive steps in which none of them ran."""
    waited_past_others: int = 0
    """The most recent consecutive steps in which a zone without seats of its own used a slot alone."""


class Life:
    """An engine with zones that are never idle."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = Random(seed)
        self.core = Core(capacity=1000)
        self.slots = chance.choice([1, 1, 2, 3, 4])
        self.has_seats_for_all = chance.random() < 0.7
        self.engine = SmallEngine(self.core, seats=64 if self.has_seats_for_all else chance.choice([2, 3, 5]))
        self.engine.adapter_slots = self.slots
        zones = [self._zone(number) for number in range(chance.randint(2, 5))]
        self.streams = [stream for zone in zones for stream in self._streams(zone)]
        self.lengths: dict[Work, int] = {}
        self.longest_grace = max(zone.spec.lending.grace_seconds for zone in zones)

    def _zone(self, number: int) -> Zone:
        chance = self.chance
        return self.core.zone(
            f"zone-{number}",
            reserved=chance.choice([0, 0, 100, 200]),
            priority=chance.choice([0, 0, 1]),
            grace=chance.choice([0.0, 0.5, 3.0]),
            seats=chance.choice([None, None, SeatQuota(reserved=1), SeatQuota(reserved=0)]),
        )

    def _streams(self, zone: Zone) -> list[Stream]:
        adapters = self.chance.sample([None, *range(1, 7)], self.chance.randint(1, 3))
        return [Stream(zone, adapter, []) for adapter in adapters]

    def is_entitled(self, zone: Zone) -> bool:
        return self.engine.arbiter._seats.reserved(zone) > 0

    def run(self) -> None:
        for _ in range(STEPS):
            self._keep_streams_full()
            self.engine.step()
            self._check()
            self._compute()
            self.core.now += STEP_SECONDS

    def _keep_streams_full(self) -> None:
        for stream in self.streams:
            waiting = self.engine.queues.get(stream.zone, [])
            stream.begun = [work for work in stream.begun if work in self.engine.running or work in waiting]
            while len(stream.begun) < 2:
                work = self.engine.wait(stream.zone, self.chance.randint(1, 5), lora=stream.adapter)
                self.lengths[work] = self.chance.randint(1, LONGEST)
                stream.begun.append(work)

    def _compute(self) -> None:
        """Nothing is cached: a request that was preempted begins again."""
        for work in self.engine.preempted:
            work.computed = 0
        self.engine.preempted.clear()
        for work in list(self.engine.running):
            work.computed += 1
            if work.computed >= self.lengths[work]:
                self.engine.end(work)
                del self.lengths[work]

    def _check(self) -> None:
        users: dict[int, set[Zone]] = {}
        for work in self.engine.running:
            if work.lora is not None:
                users.setdefault(work.lora, set()).add(work.zone)
        assert len(users) <= self.slots
        others_use_one = any(not any(map(self.is_entitled, zones)) for zones in users.values())
        running = Counter(work.zone for work in self.engine.running)
        for stream in self.streams:
            if stream.adapter is None or any(work in self.engine.running for work in stream.begun):
                stream.waited = stream.waited_past_others = 0
                continue
            stream.waited += 1
            zone = stream.zone
            has_seat = self.engine.free_seats or running[zone] < self.engine.arbiter._seats.reserved(zone)
            if others_use_one and self.is_entitled(zone) and has_seat and self._is_reachable(stream, users):
                stream.waited_past_others += 1
            else:
                stream.waited_past_others = 0
            grace = round(zone.spec.lending.grace_seconds / STEP_SECONDS)
            assert stream.waited_past_others <= max(grace, TURN_STEPS) + SLACK, "an entitled zone waits for a slot"
            if self.has_seats_for_all and self._gets_a_turn(zone):
                assert stream.waited <= self._turns_of_all, "a zone never has its turn"

    def _is_reachable(self, stream: Stream, users: Collection[int]) -> bool:
        """Whether the requests before it in its zone's queue wait for other adapters, and have waited less long."""
        before = list(takewhile(lambda work: work.lora != stream.adapter, self.engine.queues[stream.zone]))
        waiting = [each for each in self.streams if each.zone is stream.zone and each.adapter is not None]
        is_first = all(each.waited <= stream.waited for each in waiting)
        return is_first and all(work.lora is not None and work.lora not in users for work in before)

    def _gets_a_turn(self, zone: Zone) -> bool:
        """Whether the zone is entitled, or entitled zones leave a slot to others.

        They leave one if they ask for fewer adapters than there are slots. A zone that asks for one adapter also gets a
        slot if there are fewer zones than slots: then one of them uses several.
        """
        entitled = [each for each in self.streams if each.adapter is not None and self.is_entitled(each.zone)]
        if self.is_entitled(zone) or len({each.adapter for each in entitled}) < self.slots:
            return True
        adapters = [each for each in self.streams if each.zone is zone and each.adapter is not None]
        return len({each.zone for each in entitled}) < self.slots and len(adapters) == 1

    @property
    def _turns_of_all(self) -> int:
        turn = max(round(self.longest_grace / STEP_SECONDS), LONGEST + TURN_STEPS) + SLACK
        return turn * len(self.streams)


@pytest.mark.parametrize("seed", range(LIVES))
def test_each_zone_gets_adapter_slots_in_its_turn(seed):
    Life(seed).run()
