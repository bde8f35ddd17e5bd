"""Steps of an engine, decided by the arbiter, and each decision checked against the naive model."""

from collections import Counter

from tests.reservations import Reservations
from tests.zones.history import History
from tests.zones.history_tokens import BLOCK_TOKENS


class HistoryInSteps(History):
    """What vLLM's scheduler does in a step, limited to blocks and seats."""

    def make_step(self, *, turns_down=False):
        """One step; ``turns_down``: the engine finds no blocks for a request that may be admitted."""
        self.ledger.now = self.model.now = self.now
        self.is_in_step = True
        self.engine.stood_aside = set()
        if self.engine.is_open and self.overlooked is not None:
            self._saw("overlooked")
            self.engine.stood_aside.add(self.overlooked)
            self.overlooked = None
        self.engine.sent_back = []
        self.has_begun = False
        self.arbiter.begin_step()
        self.has_begun = True
        self.tokens.begin_step()
        self.look_who_lends()
        self._check_promises()
        self._check_seats()
        self.lost_turn = self._who_still_stands()
        for request in list(self.engine.running):
            self._go_on(request)
        self._admit(turns_down)
        self.tokens.end_step()
        self.arbiter.end_step()
        for request in [request for request in self.engine.running if request.is_done]:
            self._saw("ended")
            self.end(request)
        self.is_in_step = False

    def _go_on(self, request):
        if self.engine.is_in_prompt(request):
            granted = self.tokens.ask(request, self.engine.tokens_left(request), known=request.computed)
        else:
            granted = self.tokens.ask(request, 1)
        if not granted:
            return
        count = self.engine.blocks_for(request, granted)
        if count > 0:
            may_continue = self.arbiter.may_continue(request, count)
            assert may_continue == (count <= self._takeable(request, growing=True))
            if not may_continue:
                self._saw("loses its turn")
                if request not in self.lost_turn:
                    self.lost_turn.append(request)
                self.tokens.note_useless()
                return
            if request in self.lost_turn:
                self.lost_turn.remove(request)
            self.take(request, count, growing=True)
        self._compute(request, granted)

    def _who_still_stands(self):
        """Requests that lost their turn and are known to find no blocks: they may not be asked in this step."""
        skipped = self.arbiter._held_back.skipped()
        assert {*skipped} <= {*self.lost_turn}
        return skipped

    def _compute(self, request, granted):
        self.tokens.compute(request, granted)
        if not self.engine.is_in_prompt(request):
            request.ticks += 1
            request.zone.account.charge(2.0)

    def _admit(self, turns_down):
        while self.tokens.left != 0:
            rivals = self._places_of_those_that_could_begin()
            request = self.arbiter.admit_next()
            if request is None:
                break
            self.look_who_lends()
            self._check_turn(request, rivals)
            assert self.engine.free_seats
            assert self.is_admissible(request), f"next, and can't have its blocks: {request}"
            assert not self._is_at_seat_limit(request.twin), f"next, and beyond its seats: {request}"
            # Like vLLM, always computes the last token of its prompt.
            hits = min(request.hits, request.needed, len(request.twin.cached))
            known = min(BLOCK_TOKENS * hits, BLOCK_TOKENS * request.needed - 1)
            if self.chunk_tokens > 1:
                known -= known % self.chunk_tokens
            wanted = min(BLOCK_TOKENS * request.needed - known, BLOCK_TOKENS * request.chunk)
            granted = self.tokens.ask(request, wanted, known=known)
            if not granted:
                # vLLM stops looking once the step's remaining tokens end before the next possible end of a chunk.
                assert self.tokens.left < self.chunk_tokens, "next, and without tokens"
                return
            if known or turns_down:
                self.tokens.note_useless()
            if turns_down:
                self._saw("turned down")
                self.arbiter.turned_down(request)
                self.overlooked = request.zone if request is self.turned_down else None
                self.turned_down = request
                return
            self.engine.seat(request)
            self.take(request, -(-(known + granted) // BLOCK_TOKENS), growing=False)
            request.computed = known
            request.zone.account.charge(float(request.prompt))
            self._compute(request, granted)
        self.look_who_lends()
        if self.engine.free_seats and self.tokens.left != 0:
            self.check_no_zone_is_passed_over()

    def _places_of_those_that_could_begin(self):
        """The least service that counts for each zone whose next request could be admitted now, by a scan of all."""
        reached = self.arbiter._admission._fair._reached
        seats, tokens = self.arbiter._seats, self.arbiter._tokens
        return {
            front.zone: max(front.zone.account.service, reached)
            for front in self._fronts()
            if (front.zone.account.ticket > 0 or front.zone.backoff_ticket)
            and not self._is_at_seat_limit(front.twin)
            and self._held_back(front.twin) is None
            and seats.may_sit(front.zone)
            and tokens.may_begin(front, tokens.left)
            and self.is_admissible(front, with_relief=True)
        }

    def _check_turn(self, request, rivals):
        """Of all zones whose next request could begin, the one with the least service is next."""
        rivals[request.zone] = request.zone.account.service
        if len(rivals) > 1:
            self._saw("several zones could begin")
        for zone, service in rivals.items():
            self.model.zones[zone.spec.tenant].service = service
        first = self.model.next_zone([self.model.zones[zone.spec.tenant] for zone in rivals])
        assert request.twin.service == first.service, f"{first.tenant} was next"

    def _takeable(self, request, *, growing=False):
        """Blocks that the request may take, less those the arbiter keeps in this step for entitled requests.

        Other zones' entitled requests come first; a waiting request also leaves what is kept for others of its own
        zone.
        """
        claims = self.arbiter._claims
        claimed = claims.of_others(request.zone)
        takeable = self.model.takeable(request.twin, growing=growing, peak=request.peak, claimed=claimed)
        return takeable if growing else takeable - claims.of_siblings(request)

    # Queries to the model about a waiting request

    def is_admissible(self, request, *, with_relief=False):
        """Whether it could be admitted now, if necessary after evictions from other zones' caches."""
        twin, count = request.twin, request.needed
        if count > self._takeable(request):
            return with_relief and bool(self._has_headroom(twin, count)) and self._has_relief(twin, count, request)
        return self._has_headroom(twin, count)

    def _has_relief(self, twin, count, request):
        return bool(self.model.surplus_to_reclaim(twin, count, request.peak))

    def _has_headroom(self, twin, count):
        return not self.engine.running or self.model.has_headroom(twin, count)

    def _is_at_seat_limit(self, twin):
        return not self.model.may_have_seat(twin, [work.twin for work in self.engine.running])

    def _fronts(self):
        return [queue[0] for queue in self.engine.queues.values()]

    def check_no_zone_is_passed_over(self):
        """If a seat stays free, no waiting request could be admitted, except one that was just sent back."""
        for front in self._fronts():
            if self._is_at_seat_limit(front.twin):
                self._saw("at its limit of seats")
            elif self._held_back(front.twin) is not None:
                self._saw("waits for one that runs")
            elif self.tokens.may_leave_waiting(front):
                self._saw("waits for tokens")
            elif front.zone not in self.engine.stood_aside:
                assert not self.is_admissible(front, with_relief=True), f"passed over: {front}"
                if front.twin.is_entitled_to(front.needed):
                    self.promised.append(front)

    def _held_back(self, twin):
        """The tenant's first running request that lost its turn in this step: none of the tenant begins before it."""
        return next((work for work in self.lost_turn if work.running and work.twin is twin), None)

    def check_backed_off(self):
        """Who is not looked at before something changes could not be admitted before."""
        admission = self.arbiter._admission
        admission.wake()
        due = zones_due(admission._backoff, self.free, is_running=bool(self.engine.running))
        for front in self._fronts():
            if front.zone.backoff_ticket and front.zone not in due:
                self._saw("back_off")
                assert not self.is_admissible(front, with_relief=True), "a threshold lost its zone"

    def _check_promises(self):
        """I2: a request that was entitled to blocks, had a seat and got no blocks in the last step can have them
        now."""
        promised, self.promised = self.promised, []
        for front in promised:
            if front in self._fronts() and front.twin.is_entitled_to(front.needed) and self.engine.is_open:
                self._saw("a promise is kept in the next step")
                assert self.model.takeable(front.twin, peak=front.peak) >= front.needed, (
                    f"I2: a promise was not kept: {front}"
                )

    def _check_seats(self):
        """A request that is entitled to a seat, and has blocks and tokens to begin, finds a free seat in this step."""
        if not self.engine.is_open:
            return
        held = Counter(work.twin for work in self.engine.running)
        entitled = [
            front
            for front in self._fronts()
            if held[front.twin] < self.model.own_seats(front.twin)
            and front.zone not in self.engine.stood_aside
            and front.zone.wait_reason != "tokens"
            and not self._is_at_seat_limit(front.twin)
            and self.is_admissible(front)
        ]
        if entitled:
            self._saw("a seat of its own")
            assert self.engine.free_seats >= len(entitled), "a zone does not get a seat of its own"

    # The arbiter's decisions

    def check_wait(self, zone, count, peak):
        self.look_who_lends()
        twin, front = self.model.zones[zone.spec.tenant], self.engine.front(zone)
        # Before the step begins, the wait is the front's own, not that of a request that lost its turn.
        held_back = self._held_back(twin) if self.has_begun else None
        if held_back is not None:
            assert (count, peak) == (self.engine.blocks_to_continue(held_back), held_back.peak)
        else:
            assert (count, peak) == (front.needed, front.peak)
        assert zone.wait_reason == self.model.wait_reason(twin, count, peak)
        self._saw(f"waits: {zone.wait_reason}")

    def evict_surplus_for(self, zone, count, peak, evict):
        """A zone that is denied blocks may get what active zones cache above their reservations."""
        self.look_who_lends()
        twin = self.model.zones[zone.spec.tenant]
        kept = Reservations(self.ledger.zones.values())
        evictions = evict()
        kept.check_kept()
        self.model.reclaim_surplus(twin, count, peak)
        expected = self.model.collect_evictions()
        self.check_reasons(expected, twin)
        if expected:
            self._saw("reclaimed")
            assert self.model.takeable(twin, peak=peak) >= count, "nothing is evicted in vain"
            assert self._has_headroom(twin, count), "nothing is evicted in vain"
        self.reclaimed = [(tenant, block) for tenant, block, _ in expected]
        return evictions

    def return_evicted(self, evictions):
        """Returns blocks that the arbiter had evicted: for surplus reclaim, or because loans were due."""
        reasons = {reason for _, reason, _ in self.reasons()}
        borrower, self.covered_for = self.covered_for, None
        if reasons:
            assert reasons == {"due"}
            self.give_back_due([(zone, blocks) for zone, blocks in evictions if blocks], borrower)
            self.returned(evictions)
            self.check_overdue()
        else:
            assert self.returned(evictions) == self.reclaimed
            if not self.reclaimed:
                # Other zones may have taken over loans, or a config may cover them.
                self.check_overdue()
            self.reclaimed = []

    def check_unsatisfiable(self, request, error):
        twin = request.twin
        reachable = self.model.reachable(twin, request.peak)
        self._saw("can never be served")
        assert not twin.in_use
        assert request.needed > reachable
        assert f"needs {request.needed} blocks" in error
        assert f"can have at most {reachable} of this engine's" in error

    def check_victim(self, victim, reason, beneficiary):
        """Requests are preempted only for one that lacks blocks or a seat, and in the stated order."""
        self.look_who_lends()
        self._saw(f"preempted: {reason}")
        running = self.engine.by_seniority()
        zones = [work.twin for work in running]
        if reason == "due":
            assert beneficiary is None
            assert victim is running[self.model.youngest(zones, [victim.twin])]
            past = [
                loan for loan in self.tenancy.loans if loan.borrower is victim.zone and loan.grace_until is not None
            ]
            assert any(loan.grace_until <= self.now for loan in past)
            return
        twin = self.model.zones[beneficiary.spec.tenant]
        if reason == "seat":
            self._check_seat(twin, zones)
            assert victim is running[self.model.preempted_for_seat(twin, zones, self._waiting_zones())]
            return
        lacking = [count for count in self._lacking(twin, running) if twin.is_entitled_to(count) == (reason != "own")]
        assert lacking, "preempted for no zone"
        assert victim is running[self.model.preempted_for_blocks(twin, lacking[0], zones)]

    def _check_seat(self, beneficiary, zones):
        """A seat is given up only for a waiting request whose zone is owed one, and if no seat is free for it."""
        assert beneficiary in self._waiting_zones(), "a seat for no request"
        assert self.engine.free_seats < len(self.engine.waiting), "a seat is free for each"
        assert not self._is_at_seat_limit(beneficiary), "it may not have another seat"
        assert self.model.is_owed_seat(beneficiary, zones, self._waiting_zones()), "it has all that it is owed"

    def _waiting_zones(self):
        return [front.twin for front in self._fronts()]

    def _lacking(self, twin, running):
        """Blocks that requests of a zone ask for, alone or one after another, and may not take."""
        alone = [(work, self.engine.blocks_to_continue(work)) for work in running if work.twin is twin]
        lost = [(work, self.engine.blocks_to_continue(work)) for work in self.lost_turn if work.running]
        predicted = [(work, count) for work, count in self.engine.needs() if work not in self.lost_turn]
        after_one_another, total = [], 0
        for work, count in lost + predicted:
            if work.twin is twin:
                total += count
                after_one_another.append((work, total))
        for work, count in alone + after_one_another:
            if count > self._takeable(work, growing=True):
                yield count
        for front in self._fronts():
            if front.twin is twin and not self._is_at_seat_limit(twin) and front.needed > self._takeable(front):
                yield front.needed


def zones_due(backoff, free, *, is_running):
    """Zones that a step looks at, and zones whose threshold is so low that no others can reach theirs first."""
    due = {
        zone for of, threshold, _, zone in backoff._new if threshold <= backoff._height(of, free, is_running=is_running)
    }
    for of, thresholds in backoff._thresholds.items():
        height = backoff._height(of, free, is_running=is_running)
        backed_off = (
            thresholds._backed_off.get(entry[2])
            for threshold, heap in thresholds._heaps.items()
            if threshold <= height
            for entry in heap
        )
        due |= {zone for zone in backed_off if zone is not None}
    return due
