"""Draws lives. All drawn events can happen to an engine; the simplest value of each draw is the least eventful one."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from vllm.v1.core.sched.interface import PauseState

from hack.harness.kv_caches import KINDS
from tenantzone_contract.zone_config.config import PoolConfig, Watermarks, ZoneConfig
from tenantzone_contract.zone_config.tiers import TierShare
from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_config.zone_terms import Fairness, Idle, LatencyTargets, Lending, Retention, SeatShare
from tenantzone_runtime.engine.versions import keep_groups_in_tiers
from tenantzone_runtime.zones.eviction_policies import EVICTION_POLICIES
from tests.engine.histories.events import (
    IMAGES,
    STRANGER,
    TENANTS,
    Abort,
    Declare,
    Event,
    Flags,
    Forget,
    Image,
    Life,
    Pause,
    ResetCache,
    Send,
    TierFlags,
    Turns,
    Wait,
)
from tests.engine.histories.reckoning import longest

MAX_EVENTS = 80
DRAFTING = [None, None, ("ngram", 3), ("eagle", 3), ("draft_model", 1), ("mtp", 2), ("eagle", 15)]
LATENCIES = [
    *[LatencyTargets()] * 4,
    LatencyTargets(token_time_seconds=0.03),
    LatencyTargets(token_time_seconds=0.6, first_token_seconds=1.0),
    LatencyTargets(first_token_seconds=0.001),
]
SECONDS = st.sampled_from([60.0, 0.0, 1.0, 10.0])
SEATS = [
    *[SeatShare()] * 4,
    SeatShare(limit=1),
    SeatShare(limit="50%"),
    SeatShare(reserved=1),
    SeatShare(reserved=0, limit=2),
    SeatShare(reserved="40%", limit="70%"),
]


TIER_SHARES = [
    *[TierShare(tier="cpu")] * 3,
    TierShare(tier="cpu", reserved="25%"),
    TierShare(tier="cpu", reserved="10%", limit="40%"),
    TierShare(tier="cpu", limit="3%"),
    TierShare(tier="cpu", ttl_seconds=10.0),
    TierShare(tier="cpu", admission="SeenTwice"),
    TierShare(tier="cpu", admission="Auto"),
]

tiers = st.builds(
    TierFlags,
    chunks=st.sampled_from([100, 300, 30, 8, 1]),
    slowest=st.sampled_from([0, 1, 3, 12]),
    files=st.sampled_from([None, 300, 30, 3]),
    failing=st.sampled_from([False, False, True]),
)


IN_TIERS_TOGETHER = [kinds for kinds in KINDS if {"full"} < set(kinds) <= {"full", "window", "mamba align"}]
"""Kinds of layers for which a tier keeps a prompt's chunks together."""


def _tiers_for(kinds: tuple[str, ...], drafting: tuple[str, int] | None) -> st.SearchStrategy[TierFlags | None]:
    """Tier flags that go with the kinds of layers."""
    if not kinds:
        return st.none() | tiers
    if keep_groups_in_tiers() and kinds in IN_TIERS_TOGETHER and drafting is None:
        return st.none() | tiers
    return st.none()


@st.composite
def flags(draw: st.DrawFn) -> Flags:
    chunked = draw(st.sampled_from([True, True, True, False]))
    prefix_caching = draw(st.sampled_from([True, True, True, False]))
    kinds = draw(st.sampled_from([()] * len(KINDS) + [each for each in KINDS if _goes(each, chunked, prefix_caching)]))
    window = draw(st.sampled_from([None, None, 64])) if not kinds else 64
    batched_tokens = draw(st.sampled_from([1024, 64, 128, 256, 12]))
    long_prefill = draw(st.sampled_from([0, 0, 0, 16, 40]))
    drafting = draw(st.sampled_from([each for each in DRAFTING if _drafts(each, kinds, window)]))
    # With drafts, vLLM also needs the next token: an image's last one waits in vLLM for the next image to be encoded,
    # and keeps its own encoding meanwhile. So both must fit, or the request waits for ever, without zones, too.
    looks_ahead = drafting is not None and drafting[0] in ("eagle", "mtp")
    encoder = draw(st.sampled_from([None, None, (64, 160), (160, 320), *([] if looks_ahead else [(64, 64)])]))
    # What others generate must leave room for an image in each step, and chunks may end where states are kept, or where
    # modules draft.
    may_be_whole = encoder is not None and chunked and batched_tokens > 256 and not long_prefill
    may_be_whole = may_be_whole and (drafting is None or drafting[0] != "mtp")
    may_be_whole = may_be_whole and not any("align" in kind for kind in kinds)
    made = Flags(
        capacity=draw(st.sampled_from([40, 60, 100])),
        seats=draw(st.sampled_from([64, 2, 3, 4, 8])),
        batched_tokens=batched_tokens,
        chunked=chunked,
        long_prefill=long_prefill,
        watermark=draw(st.sampled_from([0.0, 0.0, 0.02, 0.1])),
        whole_prompts=draw(st.sampled_from([True, True, False])),
        window=window,
        kinds=kinds,
        policy=draw(st.sampled_from(["fcfs", "fcfs", "priority"])),
        prefix_caching=prefix_caching,
        steps_in_flight=draw(st.sampled_from([1, 2, 3, 5])),
        step_seconds=draw(st.sampled_from([0.02, 0.5, 2.0])),
        token_seconds=draw(st.sampled_from([0.0, 0.0005])),
        drafting=drafting,
        encoder=encoder,
        whole_images=may_be_whole and draw(st.booleans()),
        adapters=draw(st.sampled_from([None, None, None, 1, 2])),
        steps_in_pauses=draw(st.sampled_from([False, False, True])),
        tiers=draw(_tiers_for(kinds, drafting)) if chunked else None,
    )
    # With many drafted states, no request at all fits into the smallest pool.
    has_room = longest(made.capacity, kinds, drafting[1] if drafting else 0, made.steps_in_flight) > 0
    return made if has_room else replace(made, capacity=100)


def _goes(kinds: tuple[str, ...], chunked: bool, prefix_caching: bool) -> bool:
    """Whether vLLM supports the kinds of layers in such an engine."""
    states = [kind for kind in kinds if kind.startswith("mamba")]
    if not prefix_caching:
        return all(kind == "mamba none" for kind in states)
    return "mamba none" not in states and (chunked or not states)


def _drafts(drafting: tuple[str, int] | None, kinds: tuple[str, ...], window: int | None) -> bool:
    """Whether vLLM drafts this way for such a model. With modules and a window, 0.33 looks up blocks without a hash."""
    method = None if drafting is None else drafting[0]
    has_window = window is not None and (not kinds or "window" in kinds)
    return not (method == "mtp" and has_window) and not (method in ("mtp", "eagle") and "chunks" in kinds)


_of_tiers = st.fixed_dictionaries(
    {
        "tiers": st.sampled_from(TIER_SHARES).map(lambda share: (share, share.model_copy(update={"tier": "disk"}))),
        "offload": st.sampled_from(["All", "All", "Prompt", "Never"]),
        "retention": st.sampled_from([*[Retention()] * 4, Retention(no_store=True), Retention(ttl_seconds=60.0)]),
    }
).filter(lambda of: not (of["retention"].no_store and of["tiers"][0].ttl_seconds))


@st.composite
def zones(draw: st.DrawFn, tenant: str, left: int, chosen: Flags) -> ZoneConfig:
    """Draws a zone's config. ``left``: blocks that are not yet reserved."""
    capacity = chosen.capacity
    reserved = draw(st.sampled_from([0, left // 4, left // 2, left])) if draw(st.booleans()) else 0
    limit = None
    if draw(st.booleans()):
        limit = max(reserved, draw(st.sampled_from([capacity, capacity // 2, capacity // 4, 4, 1])))
    return ZoneConfig(
        name=tenant,
        tenant=tenant,
        generation=1,
        priority=draw(st.sampled_from([0, 0, 0, 1, -1])),
        reserved=reserved,
        limit=limit,
        weight=draw(st.sampled_from([1, 1, 3])),
        lending=Lending(
            lendable=draw(st.sampled_from(["100%", "50%", "0%"])),
            borrowers=draw(st.sampled_from(["SameOrHigherPriority", "AnyPriority"])),
            max_loan_seconds=draw(st.one_of(st.none(), SECONDS)),
            grace_seconds=draw(st.sampled_from([30.0, 0.0, 1.0, 60.0])),
        ),
        idle=Idle(after_seconds=draw(SECONDS), evict_after_seconds=draw(st.sampled_from([None, None, 0.0, 60.0]))),
        eviction_policy=draw(st.sampled_from(list(EVICTION_POLICIES))),
        purge=draw(st.sampled_from(["", "", "first", "second"])),
        fairness=draw(st.sampled_from([Fairness(), Fairness(), Fairness(header="x-user-id")])),
        latency=draw(st.sampled_from(LATENCIES)) if chosen.chunked else LatencyTargets(),
        seats=draw(st.sampled_from(SEATS)),
        **(draw(_of_tiers) if chosen.tiers is not None else {}),
    )


@st.composite
def pools(draw: st.DrawFn, capacity: int) -> PoolConfig:
    if draw(st.integers(0, 3)) < 3:
        return PoolConfig(namespace="test", name="pool")
    template = UnknownTenantTemplate(
        limit=draw(st.sampled_from([None, capacity // 2, capacity // 4])),
        priority=draw(st.sampled_from([0, 1, -1])),
        idle=Idle(after_seconds=draw(SECONDS), forget_after_seconds=draw(st.one_of(st.none(), SECONDS))),
    )
    return PoolConfig(
        namespace="test",
        name="pool",
        unknown_tenants=UnknownTenants(mode=draw(st.sampled_from(["AutoRegister", "Reject"])), template=template),
        watermarks=draw(st.sampled_from([Watermarks(), Watermarks(low=0.1, high=0.2)])),
    )


@st.composite
def configs(draw: st.DrawFn, chosen: Flags) -> Declare:
    """Draws configs that mostly fit; reservations may add up to all blocks, and sometimes to more."""
    left = chosen.capacity
    declared = []
    for tenant in TENANTS:
        # Without zones, vLLM fails on adapters of requests that skip a step.
        is_needed = chosen.adapters is not None and tenant == TENANTS[0]
        if draw(st.integers(0, 3)) > 0 or is_needed:
            declared.append(draw(zones(tenant, left, chosen)))
            left -= 0 if draw(st.integers(0, 19)) == 19 else declared[-1].reserved
    return Declare(tuple(declared), draw(pools(chosen.capacity)))


images = st.builds(Image, like=st.sampled_from(list(IMAGES)), is_new=st.booleans(), gap=st.integers(0, 200))


@st.composite
def sends(draw: st.DrawFn, chosen: Flags, *tenants: str | None) -> Send:
    capacity = chosen.capacity
    # An uncut prompt must be computed in one step, whatever the encoder has room for.
    takes_images = chosen.encoder is not None and chosen.chunked
    return Send(
        tenant=draw(st.sampled_from(tenants)),
        blocks=draw(st.one_of(st.integers(0, 4), st.integers(0, capacity // 3), st.integers(0, capacity - 1))),
        extra=draw(st.integers(1, 16)),
        max_tokens=draw(st.one_of(st.integers(1, 4), st.integers(1, 40), st.integers(1, 200))),
        prefix=draw(st.one_of(st.none(), st.integers(0, 2))),
        count=draw(st.sampled_from([1, 1, 2, 4, 8])),
        priority=draw(st.integers(-1, 1)),
        prompt_logprobs=draw(st.integers(0, 9)) == 9,
        user=draw(st.sampled_from(["", "", "ann", "bob"])),
        images=tuple(draw(st.lists(images, max_size=3))) if takes_images else (),
        grammar=draw(st.sampled_from([None] * 8 + [0, 1, 5, -1, -6])),
        adapter=None
        if chosen.adapters is None
        else draw(st.sampled_from([None, *range(1, max(4, chosen.adapters + 2))])),
    )


@st.composite
def events(draw: st.DrawFn, chosen: Flags) -> Event:
    kind = draw(st.sampled_from(_KINDS))
    if kind is Send:
        # Mostly for tenants that have a zone, if any has.
        return draw(sends(chosen, *TENANTS * 4, STRANGER, None))
    if kind is Turns:
        return Turns(draw(st.sampled_from([1, 2, 3, 5, 20])))
    if kind is Declare:
        return draw(configs(chosen))
    if kind is Wait:
        return Wait(draw(st.sampled_from([1.0, 10.0, 60.0, 200.0])))
    if kind is Abort:
        return Abort(draw(st.integers(0, 5)), draw(st.sampled_from([100, 3, 1])))
    if kind is Pause:
        return Pause(draw(st.sampled_from([PauseState.UNPAUSED, PauseState.PAUSED_NEW, PauseState.PAUSED_ALL])))
    return ResetCache(draw(st.booleans()))


_KINDS = [Turns] * 10 + [Send] * 10 + [Declare] * 2 + [Wait, Wait, Abort, Pause, Pause, ResetCache]


@st.composite
def flags_with_whole_hits(draw: st.DrawFn) -> Flags:
    """Flags of an engine with a disk, and a model whose tiers keep a prompt's chunks of several groups whole."""
    kinds = draw(st.sampled_from(IN_TIERS_TOGETHER))
    chosen = draw(flags())
    if chosen.drafting is not None or not chosen.chunked:
        chosen = replace(chosen, drafting=None, chunked=True, whole_images=False)
    if "mamba align" in kinds:
        chosen = replace(chosen, prefix_caching=True, whole_images=False)
    chunks, files = draw(st.sampled_from([100, 300, 30])), draw(st.sampled_from([300, 30, 60, 100]))
    return replace(chosen, kinds=kinds, window=64, tiers=replace(draw(tiers), chunks=chunks, files=files))


@st.composite
def flags_with_adapters(draw: st.DrawFn) -> Flags:
    """Flags of an engine that takes LoRA adapters."""
    return replace(draw(flags()), adapters=draw(st.integers(1, 4)))


@st.composite
def crowds(draw: st.DrawFn, chosen: Flags) -> Event:
    """Events that make zones want more adapters at length than there are slots."""
    if not draw(st.booleans()):
        return Turns(draw(st.sampled_from([20, 40])))
    send = draw(sends(chosen, *TENANTS))
    adapter = draw(st.integers(1, chosen.adapters + 1)) if chosen.adapters is not None else None
    return replace(send, adapter=adapter, blocks=min(send.blocks, 4), max_tokens=draw(st.sampled_from([60, 20, 200])))


@st.composite
def flags_with_images(draw: st.DrawFn) -> Flags:
    """Flags of an engine whose encoder has room for at most two images."""
    chosen = draw(flags())
    looks_ahead = chosen.drafting is not None and chosen.drafting[0] in ("eagle", "mtp")
    room = draw(st.sampled_from([(64, 160), (160, 160), *([] if looks_ahead else [(64, 64), (64, 100)])]))
    if not chosen.chunked:
        chosen = replace(chosen, chunked=True, drafting=None, kinds=(), window=None, tiers=None)
    return replace(chosen, encoder=room, whole_images=chosen.whole_images and chosen.encoder is not None)


@st.composite
def flags_with_slow_images(draw: st.DrawFn) -> Flags:
    """Flags of the same engine where a request keeps an image's room for many steps: each computes few tokens."""
    chosen = replace(
        draw(flags_with_images()),
        capacity=200,
        seats=12,
        batched_tokens=draw(st.sampled_from([12, 24, 64])),
        drafting=None,
        kinds=(),
        window=None,
        policy="fcfs",
        whole_images=False,
        tiers=None,
        adapters=None,
        steps_in_pauses=False,
        steps_in_flight=draw(st.sampled_from([1, 2])),
        step_seconds=draw(st.sampled_from([0.02, 0.5])),
    )
    return replace(chosen, encoder=draw(st.sampled_from([(64, 64), (64, 100), (128, 128)])))


@st.composite
def galleries(draw: st.DrawFn, chosen: Flags) -> Event:
    """Events that make zones want more images encoded at length than there is room for."""
    if not draw(st.booleans()):
        return Turns(draw(st.sampled_from([20, 40])))
    send = draw(sends(chosen, *TENANTS))
    shown = tuple(draw(st.lists(images, min_size=1, max_size=3)))
    return replace(send, images=shown, blocks=max(send.blocks, 6), max_tokens=min(send.max_tokens, 8), grammar=None)


@st.composite
def lives_with_slow_images(draw: st.DrawFn) -> Life:
    """Borrowers have many images encoded, one or two entitled zones one at a time, and one zone computes long texts."""
    chosen = draw(flags_with_slow_images())
    graces = st.sampled_from([0.0, 1.0, 5.0])
    happens: list[Event] = [
        Declare(
            (
                _zone_with_images("acme", reserved=40, lending=Lending(grace_seconds=draw(graces))),
                _zone_with_images("calm", reserved=draw(st.sampled_from([40, 0])), weight=40),
                _zone_with_images("burst", priority=draw(st.sampled_from([0, 1]))),
                _zone_with_images("dusk"),
            ),
            PoolConfig(namespace="test", name="pool"),
        )
    ]
    for _ in range(draw(st.integers(1, 3))):
        shown = Image(draw(st.sampled_from(["owl", "dog"])), is_new=True, gap=draw(st.sampled_from([0, 16])))
        flood = (shown,) * draw(st.integers(2, 4))
        happens.append(_asking(draw(st.sampled_from(["burst", "dusk"])), 17, flood, count=draw(st.integers(1, 4))))
        happens.append(Turns(draw(st.sampled_from([3, 10]))))
        if draw(st.booleans()):
            happens.append(_asking("calm", 30, (), count=draw(st.integers(1, 2))))
        happens.append(_asking("acme", 5, (Image("owl", is_new=True, gap=draw(st.sampled_from([0, 10]))),)))
        happens.append(Turns(draw(st.sampled_from([30, 60]))))
    return Life(chosen, tuple(happens))


def _zone_with_images(tenant: str, **spec: Any) -> ZoneConfig:
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **spec)


def _asking(tenant: str, blocks: int, shown: tuple[Image, ...], count: int = 1) -> Send:
    return Send(
        tenant=tenant,
        blocks=blocks,
        extra=1,
        max_tokens=2,
        prefix=None,
        count=count,
        priority=0,
        prompt_logprobs=False,
        user="",
        images=shown,
        grammar=None,
        adapter=None,
    )


@st.composite
def returns(draw: st.DrawFn, chosen: Flags) -> Event:
    """Events that repeat prompts that only a disk still has."""
    kind = draw(st.sampled_from([Send, Turns, Forget]))
    if kind is Send:
        prompt = replace(draw(sends(chosen, *TENANTS[:2])), prefix=draw(st.integers(0, 1)), prompt_logprobs=False)
        return replace(prompt, blocks=draw(st.sampled_from([6, 1, 12, 20])), max_tokens=min(prompt.max_tokens, 4))
    return Turns(draw(st.sampled_from([40, 3]))) if kind is Turns else Forget()


@st.composite
def lives(
    draw: st.DrawFn,
    flags: st.SearchStrategy[Flags] = flags(),  # noqa: B008
    *,
    have_returns: bool = False,
    have_crowds: bool = False,
    have_galleries: bool = False,
) -> Life:
    chosen = draw(flags)
    event = events(chosen)
    if have_returns:
        event = event | returns(chosen) | returns(chosen)
    if have_crowds:
        event = event | crowds(chosen) | crowds(chosen)
    if have_galleries:
        event = event | galleries(chosen) | galleries(chosen)
    happens: list[Event] = []
    begins_with_zones = chosen.adapters is not None
    if draw(st.booleans()) and not begins_with_zones:
        for _ in range(draw(st.integers(1, 4))):
            happens.append(draw(sends(chosen, None)))
            happens.append(Turns(draw(st.sampled_from([0, 1, 3, 20]))))
    if draw(st.integers(0, 9)) < 9 or begins_with_zones:
        happens.append(draw(configs(chosen)))
    for _ in range(draw(st.integers(1, MAX_EVENTS))):
        happens.append(draw(event))
    return Life(chosen, tuple(happens))
