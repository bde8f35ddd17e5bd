"""Invariants after each step of any life, whatever the engine's flags."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from hack.harness.processed_tokens import TokenTally
from hack.harness.scheduler import Driver
from tenantzone_runtime.engine.patches.media.media_names import owner_in
from tenantzone_runtime.zones.audit.events import Evicted, Preempted
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tenancy import PREPARATIONS
from tests.engine.histories.adapter_slots import AdapterSlots
from tests.engine.histories.encoder_room import EncoderRoom
from tests.engine.histories.reckoning import blocks_at_most, slots_at_most, slots_to_admit
from tests.engine.histories.snapshot import Snapshot, could_be_admitted, take_snapshot, zone_of

MAX_PASSED_OVER = 2
"""Steps with a free seat and a token left in which an entitled zone gets none of its requests admitted."""


def _has_images_ahead(request: Request) -> bool:
    places = [feature.mm_position for feature in request.mm_features]
    return any(place.offset + place.length > request.num_computed_tokens for place in places)


class Invariants:
    """Checks an engine from outside, before and after each event.

    Args:
        driver: the engine's driver.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._scheduler = driver.scheduler
        self._refused: set[Request] = set()
        """Refused requests that have not ended yet."""
        self._may_fail: set[Request] = set()
        self._limits: dict[Zone, int] = {}
        self._caught: set[Request] = set()
        """Requests that were there when their zone's limit was lowered: they may pass it."""
        self._unsatisfiable: set[str] = set()
        """Ids of requests that some config has made impossible: they may be failed after a while."""
        self._had_requests: set[Zone] = set()
        self._withheld: dict[Zone, int] = {}
        """Tokens withheld by zone up to the last step."""
        self._passed_over: Counter[Zone] = Counter()
        self._awaited_loads: dict[Zone, set[Request]] = {}
        """Loads that had begun before a zone was passed over."""
        self._landed_for: Counter[Request] = Counter()
        """Steps with a token left in which a request whose load had ended did not begin to run."""
        self._ended: set[str] = set()
        self._adapter_slots = AdapterSlots(driver.scheduler)
        self._encoder_room = EncoderRoom(driver.scheduler)
        self._tally = TokenTally(driver.scheduler, zone_of)
        self._early: set[Request] = set()
        """Requests that arrived before any zone was declared."""

    def promises(self) -> dict[str, tuple[int, int]]:
        """Each zone's reservation and limit, in blocks."""
        zones = self._scheduler.block_pool.ledger.zones
        return {tenant: (zone.spec.quota.reserved, zone.spec.quota.limit) for tenant, zone in zones.items()}

    def was_caught(self, request: Request) -> bool:
        """Whether its zone's limit was lowered after it arrived."""
        return request in self._caught

    # Arrivals, configs

    @contextmanager
    def around_an_arrival(self) -> Iterator[SimpleNamespace]:
        reported = SimpleNamespace(request=None, may_fail=False)
        before = sum(self._scheduler.tenancy.refusals.values())
        yield reported
        if sum(self._scheduler.tenancy.refusals.values()) > before:
            self._refused.add(reported.request)
            self._refused_requests_wait_for_their_end()
        if reported.may_fail:
            self._may_fail.add(reported.request)
        if (zone := zone_of(reported.request)) is not None:
            self._had_requests.add(zone)
        else:
            self._early.add(reported.request)
        self._notice_limits()

    @contextmanager
    def around_a_config(self, *, has_pauses: bool) -> Iterator[None]:
        zones = self._scheduler.block_pool.ledger.zones
        before = {zone: zone.purges for zone in zones.values()}
        yield
        self._notice_limits()
        purged = {zone for zone in zones.values() if zone.purges > before.get(zone, 0)}
        assert all(zone.purge is None or zone.purge.is_complete for zone in zones.values())
        if not has_pauses:
            self._nothing_is_found_of(purged)
        self._who_never_had_a_request_lends()

    def _nothing_is_found_of(self, purged: set[Zone]) -> None:
        pool = self._scheduler.block_pool
        for block in pool.blocks:
            is_purged = pool.ledger.owner[block.block_id] in purged
            assert not is_purged or block.block_hash is None, "a block is found that was computed before a purge"
        assert not any(zone.cached for zone in purged), "a purged zone keeps something cached"

    def _who_never_had_a_request_lends(self) -> None:
        for zone in self._scheduler.block_pool.ledger.zones.values():
            if zone not in self._had_requests:
                quota = zone.spec.quota
                assert zone.locked <= quota.reserved - quota.lendable, "a zone without traffic keeps what it lends"

    def _notice_limits(self) -> None:
        limits = {zone: zone.spec.quota.limit for zone in self._scheduler.block_pool.ledger.zones.values()}
        for zone, limit in limits.items():
            if limit < self._limits.get(zone, limit):
                self._caught |= {each for each in self._scheduler.requests.values() if zone_of(each) is zone}
        self._limits = limits
        totals = self._scheduler.block_pool.ledger.totals
        for request in self._scheduler.requests.values():
            zone = zone_of(request)
            peak = blocks_at_most(self._scheduler, slots_at_most(self._scheduler, request))
            if zone is not None and peak > totals.reachable(zone, peak):
                self._unsatisfiable.add(request.request_id)

    @contextmanager
    def around_a_reset(self) -> Iterator[None]:
        yield
        self._scheduler.tenancy.ledger.trail.collect()

    # Steps

    @contextmanager
    def around_a_schedule(self) -> Iterator[SimpleNamespace]:
        reported = SimpleNamespace(output=None)
        # A config may be taking effect.
        self._notice_limits()
        before = take_snapshot(self._driver)
        self._encoder_room.before(before)
        self._scheduler.tenancy.ledger.trail.collect()
        yield reported
        self._tally.scheduled(reported.output)
        self._check_step(before, take_snapshot(self._driver), reported.output)

    def _check_step(self, before: Snapshot, after: Snapshot, output: SchedulerOutput) -> None:
        scheduled = output.num_scheduled_tokens
        tokens_left = self._tokens_left(scheduled)
        if self._scheduler.pause_state == PauseState.PAUSED_ALL:
            assert not scheduled, "a paused engine computes nothing"
            tokens_left = 0
        for request in self._refused:
            assert request.request_id not in scheduled, "a refused request is scheduled"
            assert not after.used.get(request), "a refused request gets blocks"
        self._images_are_computed_whole(output)
        self._seats_are_not_exceeded(before, after)
        self._no_new_request_passes_a_limit(before, after)
        self._blocks_are_taken_for_a_reason(before, after)
        self._adapter_slots.check(before, after)
        self._encoder_room.after(after, output)
        self._who_is_prepared_has_that_reason()
        if tokens_left > 0 and self._scheduler.block_pool.ledger.zones:
            self._what_has_landed_runs(before, after)
            self._who_runs_is_scheduled(before, after, output)
            self._an_entitled_zone_gets_in(before, tokens_left)

    def _who_is_prepared_has_that_reason(self) -> None:
        if self._scheduler.pause_state != PauseState.UNPAUSED:
            return
        queue = self._scheduler.waiting
        for zone in self._scheduler.block_pool.ledger.zones.values():
            expected = queue._deferred.reason(zone) or queue.loads.reason(zone)
            if zone in queue._queues or expected is None:
                assert zone.wait_reason not in PREPARATIONS, "a zone has a request that waits for something else"
            else:
                assert zone.wait_reason == expected, "a zone does not say what all of its requests wait for"

    def _images_are_computed_whole(self, output: SchedulerOutput) -> None:
        if not self._scheduler.scheduler_config.disable_chunked_mm_input:
            return
        cached = output.scheduled_cached_reqs
        begins = {each.req_id: each.num_computed_tokens for each in output.scheduled_new_reqs}
        begins |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for name, begin in begins.items():
            end = begin + output.num_scheduled_tokens[name]
            for feature in self._scheduler.requests[name].mm_features:
                place = feature.mm_position
                cut = begin <= place.offset < end < place.offset + place.length
                assert not cut, "an image is cut in its midst"

    def _seats_are_not_exceeded(self, before: Snapshot, after: Snapshot) -> None:
        seats = self._scheduler.max_num_running_reqs
        assert len(after.running) <= seats
        if self._scheduler.block_pool.ledger.zones:
            # Without zones, vLLM begins loads for which it has no seats.
            assert len(after.seated) <= max(seats, len(before.seated)), "a load begins without a seat"
        for zone, most in after.most_seats.items():
            # After a limit is lowered, running requests may finish.
            assert after.seats_of(zone) <= max(most, before.seats_of(zone)), "a request is admitted beyond its seats"

    def _tokens_left(self, scheduled: dict[str, int]) -> int:
        """Tokens left in the step for one more request."""
        scheduler = self._scheduler
        drafting = scheduler.vllm_config.speculative_config
        slots = 0 if drafting is None else drafting.max_num_new_slots_for_drafting
        in_all = scheduler.scheduler_config.max_num_batched_tokens - slots * (len(scheduled) + 1)
        # Where states are kept at the ends of blocks, a prompt proceeds by at least a block.
        block = scheduler.cache_config.block_size if scheduler.need_mamba_block_aligned_split else 1
        # Where modules draft one token each, a prompt's end is not left to a step with fewer tokens than modules.
        at_least = block - 1 + scheduler.num_prefill_lookahead
        return min(scheduler.max_num_scheduled_tokens, in_all) - sum(scheduled.values()) - at_least

    def _no_new_request_passes_a_limit(self, before: Snapshot, after: Snapshot) -> None:
        for zone in self._scheduler.block_pool.ledger.zones.values():
            limit = zone.spec.quota.limit
            if zone.in_use <= limit:
                continue
            used_before = set().union(*(used for each, used in before.used.items() if zone_of(each) is zone))
            taken: dict[bool, set[int]] = {True: set(), False: set()}
            for request, used in after.used.items():
                if zone_of(request) is zone:
                    taken[request in self._caught] |= used - used_before
            passed = zone.in_use - len(taken[True]) > limit
            assert not (taken[False] and passed), "a request takes blocks beyond a limit that was there before it"

    def _blocks_are_taken_for_a_reason(self, before: Snapshot, after: Snapshot) -> None:
        """No zone loses what it was promised, and none loses blocks to a zone that can't use them."""
        admitted = {zone_of(request) for request in after.seated} - {zone_of(request) for request in before.seated}
        admitted |= {zone_of(request) for request in set(after.seated) - set(before.seated)}
        seats_taken = len(before.seated) >= self._scheduler.max_num_running_reqs
        paused = self._scheduler.pause_state == PauseState.PAUSED_NEW
        zones = self._scheduler.block_pool.ledger.zones
        for event in self._scheduler.tenancy.ledger.trail.collect():
            if not isinstance(event, Preempted | Evicted):
                continue
            loser = None if event.zone is None else zones.get(event.zone)
            if isinstance(event, Preempted) and event.reason == "own" and loser in before.in_use:
                assert not before.has_room_for(loser), "a request is preempted for its own zone, which has room"
                assert not before.has_but_a_grace(loser), "a request is preempted for a loan before its grace is over"
            gainer = None if event.beneficiary is None else zones.get(event.beneficiary)
            if loser is gainer:
                continue
            if isinstance(event, Preempted) and loser in before.in_use and event.reason in ("reclaim", "due"):
                most = before.in_use[loser] + before.growth_of(loser)
                assert most > before.reserved[loser], "a request is preempted within its zone's reservation for another"
            if isinstance(event, Preempted) and event.reason == "seat":
                self._a_seat_is_given_up_for_an_owner(before, event, loser, gainer)
            if gainer is not None and gainer not in admitted and not before.growth_of(gainer):
                needless = "evicted" if isinstance(event, Evicted) else "preempted"
                assert not paused, f"{needless} for a request that a pause holds back"
                if isinstance(event, Evicted) and event.reason != "due":
                    assert not seats_taken, f"evicted for a request that has no seat: {event}"

    def _a_seat_is_given_up_for_an_owner(
        self, before: Snapshot, event: Preempted, loser: Zone | None, gainer: Zone | None
    ) -> None:
        seats_wanted = len(before.seated) + len(before.waiting) + len(before.joining)
        assert seats_wanted > self._scheduler.max_num_running_reqs, "a seat is given up although one is free"
        if loser in before.own_seats:
            kept = before.seats_of(loser) - event.requests
            assert kept >= before.own_seats[loser], "a request is preempted that runs on a seat of its zone's own"
        if gainer in before.own_seats:
            # Zones without their own seats share one.
            most = max(1, before.own_seats[gainer])
            assert before.seats_of(gainer) + event.requests <= most, (
                "a seat is given up for a zone that is not entitled to it"
            )

    def _who_runs_is_scheduled(self, before: Snapshot, after: Snapshot, output: SchedulerOutput) -> None:
        # Blocks that leave a window in the middle of the step are too late for a request that stands before, ...
        let_go = sum(len(before.used[each] - after.used[each]) for each in before.running if each in after.running)
        # ... and blocks that states are copied into are freed after the step.
        let_go += len(output.kv_cache_block_copies or ())
        for request in before.running:
            if request.status != RequestStatus.RUNNING or request.request_id in output.num_scheduled_tokens:
                continue
            if not before.has_tokens_to_compute[request]:
                continue
            if _has_images_ahead(request):
                # The encoder may have no room for its next image.
                continue
            zone, growth = zone_of(request), before.growth[request]
            if zone is not None and zone.counters.withheld_tokens > self._withheld.get(zone, 0):
                # It skips the step: other zones with prompts have their shares of it.
                continue
            assert growth, "a request that runs and needs no block is left out of a step that has tokens left"
            if zone is not None and zone in before.available:
                available = min(before.available[zone], after.available.get(zone, 0) - let_go)
                assert available < growth, "a request that runs is left out although its zone may have the blocks"
        zones = self._scheduler.block_pool.ledger.zones.values()
        self._withheld = {zone: zone.counters.withheld_tokens for zone in zones}

    def _what_has_landed_runs(self, before: Snapshot, after: Snapshot) -> None:
        has_landed = self._scheduler._has_landed
        landed = {request for request in before.loading if request in after.loading and has_landed(request)}
        for request in set(self._landed_for) - landed:
            del self._landed_for[request]
        if len(after.running) >= self._scheduler.max_num_running_reqs:
            # It began before there were zones, without a seat.
            return
        for request in landed:
            zone = zone_of(request)
            if _has_images_ahead(request):
                continue
            if zone is not None and zone.counters.withheld_tokens > self._withheld.get(zone, 0):
                continue
            self._landed_for[request] += 1
            assert self._landed_for[request] <= MAX_PASSED_OVER, "a request whose load has ended does not run"

    def _to_admit(self, request: Request) -> int:
        return blocks_at_most(self._scheduler, slots_to_admit(self._scheduler, request))

    def _an_entitled_zone_gets_in(self, before: Snapshot, tokens_left: int) -> None:
        waiting: dict[Zone, list[Request]] = {}
        for request in before.waiting:
            if (zone := zone_of(request)) is not None and zone in before.in_use:
                waiting.setdefault(zone, []).append(request)
        for request in before.joining:
            # The zone's other requests may stand behind it.
            if (zone := zone_of(request)) in waiting:
                waiting[zone].append(request)
        entitled = {
            zone
            for zone, requests in waiting.items()
            if before.in_use[zone] + before.growth_of(zone) + max(self._to_admit(each) for each in requests)
            <= before.reserved[zone]
        }
        for zone in set(self._passed_over) - entitled:
            self._is_passed_over_no_more(zone)
        seated = {*self._scheduler.running, *self._scheduler.kv_holding_waiting}
        has_seat = len(seated) < self._scheduler.max_num_running_reqs
        is_chunked = self._scheduler.scheduler_config.enable_chunked_prefill
        if not is_chunked and any(request.num_tokens > tokens_left for request in before.waiting):
            # vLLM stops at a prompt that must be computed at once and for which others leave too few tokens.
            return
        for zone in entitled:
            if any(map(_has_images_ahead, waiting[zone])):
                continue
            if not seated.isdisjoint(waiting[zone]):
                self._is_passed_over_no_more(zone)
            elif not any(could_be_admitted(self._scheduler, each) for each in waiting[zone]):
                # A tier is about to deliver what they were found to need.
                continue
            elif zone.wait_reason == "tokens":
                # Other zones with prompts have their shares of the step, and its own is not yet enough to begin with.
                continue
            elif before.seats_of(zone) >= before.most_seats[zone]:
                # It waits for one of its own requests to end, however many seats are free.
                continue
            elif self._waits_for_a_load(zone, before):
                continue
            elif (
                has_seat or before.seats_of(zone) < before.own_seats[zone]
            ) and self._scheduler.pause_state == PauseState.UNPAUSED:
                self._passed_over[zone] += 1
                most = MAX_PASSED_OVER + self._steps_until_blocks_are_let_go
                assert self._passed_over[zone] <= most, "an entitled zone does not get its blocks"

    @property
    def _steps_until_blocks_are_let_go(self) -> int:
        """With tiers, vLLM frees a request's blocks only after the steps in flight at that time."""
        return int(self._scheduler.vllm_config.max_concurrent_batches) if self._scheduler.tiers.served else 0

    def _is_passed_over_no_more(self, zone: Zone) -> None:
        self._passed_over.pop(zone, None)
        self._awaited_loads.pop(zone, None)

    def _waits_for_a_load(self, zone: Zone, before: Snapshot) -> bool:
        """Whether others' loads, which can't be preempted, began before the zone was entitled to their place and still
        run.

        A load that begins later takes no other zone's place.
        """
        loading = {request for request in before.loading if zone_of(request) is not zone}
        awaited = self._awaited_loads[zone] = self._awaited_loads.get(zone, loading) & loading
        return not awaited.isdisjoint(self._scheduler.kv_holding_waiting)

    def _encodings_are_accounted_for(self) -> None:
        cache = self._scheduler.encoder_cache_manager
        sizes = cache.num_embeds_by_hash
        assert cache.num_free_slots + sum(sizes.values()) == cache.cache_size, "room of the encoder cache is lost"
        assert cache.cached.keys() == sizes.keys()
        held: Counter[Zone] = Counter()
        for name, zone in cache._owners.items():
            held[zone] += sizes[name]
        assert all(cache.held(zone) == held[zone] for zone in {*held, *cache._held}), (
            "a zone's encodings are miscounted"
        )
        for name, users in cache.cached.items():
            for user in users:
                owner, request = cache._owners.get(name), self._scheduler.requests[user]
                # An image that a tenant sent before its zone existed still belongs to the tenant.
                is_its_own = bool(request.cache_salt) and name.startswith(owner_in(request.cache_salt))
                assert owner in (None, zone_of(request)) or is_its_own, "an encoding is found by another tenant"

    def before_an_update(self, output: SchedulerOutput, result: ModelRunnerOutput) -> None:
        self._tally.ending(output, result)

    def each_token_is_counted_once(self) -> None:
        """Checks finished zones' token counters. Requests from before the first zone count from its declaration on."""
        if not self._tally.is_settled:
            return
        adopting = {zone_of(request) for request in self._early}
        for zone, tally in self._tally.counts.items():
            if zone.requests or zone in adopting:
                continue
            counters = zone.counters
            computed = counters.computed_first_tokens, counters.recomputed_tokens, counters.rejected_draft_tokens
            counted = (counters.hit_tokens + counters.loaded_tokens, *computed)
            expected = tuple(tally[kind] for kind in ("found", "computed_first", "recomputed", "draft_rejected"))
            assert counted == expected, "tokens are processed and in no counter, or in another one"
            assert sum(computed) == self._tally.scheduled_tokens[zone]
            assert self._scheduler.tiers.served or not counters.loaded_tokens

    def after_an_update(self) -> None:
        self.each_token_is_counted_once()
        self._encodings_are_accounted_for()
        self._what_memory_keeps_is_of_use()
        for request in self._refused:
            assert request.is_finished(), "a refused request has not ended with the next update"
            assert request.num_computed_tokens == 0, "a refused request was computed"
            assert not request.num_output_tokens, "a refused request was answered"
        ended = self._driver.finished.keys() - self._ended
        self._ended |= ended
        for name in ended:
            if self._driver.finished[name] == "error":
                expected = {request.request_id for request in self._refused | self._may_fail | self._caught}
                assert name in expected | self._unsatisfiable, "a request ends with an error for no reason"
        for request in self._refused:
            outcome = self._driver.finished.get(request.request_id, "abort")
            assert outcome in ("error", "abort"), f"a refused request ended with {outcome}"
        self._refused.clear()
        self._refused_requests_wait_for_their_end()

    def _what_memory_keeps_is_of_use(self) -> None:
        """With several groups, each chunk belongs to a hit, or an unfinished request counts on it."""
        if len(self._scheduler.kv_cache_config.kv_cache_groups) == 1:
            return
        for served in self._scheduler.tiers.served:
            tier = served.tier
            for zone in tier.ledger.zones.values():
                assert all(chunk in tier.links or tier.is_counted_on(chunk) for chunk in zone.cached), "it is of no use"

    def _refused_requests_wait_for_their_end(self) -> None:
        if self._scheduler.pause_state == PauseState.UNPAUSED and self._refused:
            assert self._scheduler.has_requests(), "an engine without other work does not end a refused request"
