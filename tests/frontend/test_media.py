"""What a request's media options may ask for, and how much of a tenant's media is in progress at a time."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from tenantzone_runtime.frontend.body.media import BYTES_OF_PIXEL
from tenantzone_runtime.frontend.body.media_options import check_media_options
from tenantzone_runtime.frontend.in_flight import InFlight
from tenantzone_runtime.frontend.middleware import TenantMiddleware
from tenantzone_runtime.frontend.request_context import current_context
from tenantzone_runtime.frontend.responses.answers import Refusal
from tenantzone_runtime.settings import Bounds
from tests.frontend.harness import call, give_keys, give_zones, settings

BOUNDS = Bounds(
    max_media_items=10, max_image_pixels=1000, max_request_pixels=4000, max_tenant_media_bytes=4000 * BYTES_OF_PIXEL,
    max_held_media_bytes=10_000 * BYTES_OF_PIXEL, max_media_file_bytes=5000, max_audio_samples=1000,
)  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mm_processor_kwargs": None, "media_io_kwargs": None},
        {"mm_processor_kwargs": {"do_resize": False, "size": {"height": 20, "width": 20}, "crop_size": 20}},
        {"mm_processor_kwargs": {"min_pixels": 400, "max_pixels": 1000, "fps": 2}},
        {"media_io_kwargs": {"image": {"image_mode": "RGBA"}, "video": {"num_frames": 10**9}, "audio": None}},
    ],
)
def test_options_that_enlarge_nothing_are_let_through(options):
    check_media_options(options, BOUNDS)


@pytest.mark.parametrize(
    "options",
    [
        {"mm_processor_kwargs": 3},
        {"mm_processor_kwargs": {"size": {"height": 21}}},
        {"mm_processor_kwargs": {"size": {"depth": 1}}},
        {"mm_processor_kwargs": {"size": 10**9}},
        {"mm_processor_kwargs": {"size": [1, 1]}},
        {"mm_processor_kwargs": {"crop_size": {"width": -1}}},
        {"mm_processor_kwargs": {"min_pixels": 401}},
        {"mm_processor_kwargs": {"min_pixels": float("nan")}},
        {"mm_processor_kwargs": {"max_pixels": 1001}},
        {"mm_processor_kwargs": {"max_dynamic_patch": 1}},
        {"media_io_kwargs": []},
        {"media_io_kwargs": {"video": 1}},
        {"media_io_kwargs": {"video": {"num_ffmpeg_threads": 1}}},
        {"media_io_kwargs": {"smell": {"num_frames": 1}}},
    ],
)
def test_options_that_enlarge_or_are_not_known_are_refused_by_name(options):
    (field,) = options
    with pytest.raises(Refusal) as refusal:
        check_media_options(options, BOUNDS)
    assert (refusal.value.status, refusal.value.reason, refusal.value.param) == (400, "large_media", field)
    assert field in str(refusal.value)


def test_a_small_image_counts_as_what_a_processor_may_make_of_it():
    use = InFlight(BOUNDS).admit("acme").media
    for _ in range(10):
        use.add_image(1, 1)
    assert use.pixels_left == 0
    with pytest.raises(Refusal, match="TENANTZONE_MAX_REQUEST_PIXELS"):
        use.add_image(1, 1)


def test_sounds_count_over_all_of_a_request():
    use = InFlight(BOUNDS).admit("acme").media
    use.add_samples(BOUNDS.max_audio_samples)
    assert use.samples_left == 0
    with pytest.raises(Refusal, match="TENANTZONE_MAX_AUDIO_SAMPLES"):
        use.add_samples(1)


def test_a_short_sound_and_a_small_frame_count_as_what_a_processor_may_make_of_them():
    use = InFlight(BOUNDS).admit("acme").media
    for _ in range(10):
        use.add_samples(1)
    assert use.samples_left == 0
    use.add_video(1, 1, 40)
    assert use.pixels_left == 0


def test_a_request_that_needs_more_memory_than_a_tenant_may_have_is_refused():
    bounds = replace(BOUNDS, max_tenant_media_bytes=3999 * BYTES_OF_PIXEL)
    for bound, name in (
        (bounds, "MAX_TENANT_MEDIA_BYTES"),
        (replace(BOUNDS, max_held_media_bytes=9), "MAX_HELD_MEDIA"),
    ):
        use = InFlight(bound).admit("acme").media
        use.add_video(20, 20, 10)
        with pytest.raises(Refusal, match=name) as refusal:
            asyncio.run(use.enter())
        assert (refusal.value.status, refusal.value.reason) == (413, "large_media")


async def entered(use):
    """A task that waits for the memory of a request's media, once it has begun to."""
    task = asyncio.ensure_future(use.enter())
    for _ in range(5):
        await asyncio.sleep(0)
    return task


def requests(in_flight, *tenants):
    """A request of each tenant, with media of the largest size that a tenant may use."""
    held = [in_flight.admit(tenant) for tenant in tenants]
    for each in held:
        each.media.add_video(20, 20, 10)
    return held


async def test_all_tenants_together_have_no_more_memory_than_there_is_and_take_turns():
    in_flight = InFlight(BOUNDS)
    names = ("acme", "burst", "acme", "acme", "carol", "dora")
    held = requests(in_flight, *names)
    tasks = [await entered(each.media) for each in held]
    order = []
    for _ in names:
        inside = [number for number, task in enumerate(tasks) if task.done() and held[number] is not None]
        assert sum(4000 * BYTES_OF_PIXEL for _ in inside) <= BOUNDS.max_held_media_bytes
        order += [number for number in inside if number not in order]
        first = inside[0]
        held[first].let_go()
        held[first] = None
        for _ in range(10):
            await asyncio.sleep(0)
    assert all(task.done() for task in tasks)
    assert [names[number] for number in order] == ["acme", "burst", "carol", "dora", "acme", "acme"]


async def test_a_request_that_ends_while_it_waits_for_other_tenants_gives_its_own_tenants_memory_back():
    in_flight = InFlight(BOUNDS)
    first, second, third, fourth = requests(in_flight, "acme", "burst", "carol", "carol")
    for each in (first, second):
        await each.media.enter()
    waiting = await entered(third.media)
    behind = await entered(fourth.media)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    third.let_go()
    first.let_go()
    await asyncio.wait_for(behind, 60)


async def test_files_of_all_tenants_are_bounded_before_they_are_fetched_and_what_is_not_needed_is_given_back():
    in_flight = InFlight(replace(BOUNDS, max_held_media_bytes=8 * 20_000, max_tenant_media_bytes=8 * 8000))
    held = [in_flight.admit(name) for name in "abcdef"]
    uses = [each.media for each in held]
    tasks = [asyncio.ensure_future(use.enter_files()) for use in uses]
    for _ in range(5):
        await asyncio.sleep(0)
    assert [task.done() for task in tasks] == [True] * 4 + [False] * 2
    for use in uses[:2]:
        use.add_file(100)
        use.are_fetched()
    await asyncio.wait_for(tasks[4], 60)
    assert not tasks[5].done()
    held[2].let_go()
    await asyncio.wait_for(tasks[5], 60)


@pytest.mark.parametrize("enter", ["enter", "enter_files"])
@pytest.mark.parametrize("tenant", ["acme", "burst"])
@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_conversations_of_one_request_wait_once_for_its_memory(enter, tenant, is_cancelled):
    in_flight = InFlight(replace(BOUNDS, max_held_media_bytes=8 * 8000, max_tenant_media_bytes=8 * 8000,
                                max_request_pixels=8 * 8000 // BYTES_OF_PIXEL))  # fmt: skip
    first, second = in_flight.admit(tenant), in_flight.admit("acme")
    for held in (first, second):
        held.media.has_several_conversations = True
        held.media.add_image(1, 1)
        held.media.add_file(1)
    for _ in range(2):
        await getattr(first.media, enter)()
        await getattr(first.media, enter)()
    conversations = [asyncio.ensure_future(getattr(second.media, enter)()) for _ in range(3)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert not any(task.done() for task in conversations)
    if is_cancelled:
        conversations[0].cancel()
    first.let_go()
    await asyncio.wait_for(asyncio.gather(*conversations[is_cancelled:]), 60)
    second.let_go()
    third = in_flight.admit(tenant)
    third.media.has_several_conversations = True
    third.media.add_image(1, 1)
    await asyncio.wait_for(getattr(third.media, enter)(), 60)


@pytest.mark.parametrize("end", ["is_ready", "let_go"])
def test_a_request_gives_its_memory_back_when_the_engine_has_it_or_it_ends(end):
    async def play():
        in_flight = InFlight(BOUNDS)
        first, second = in_flight.admit("acme"), in_flight.admit("acme")
        for each in (first, second):
            each.media.add_video(30, 30, 3)
        await first.media.enter()
        waiting = asyncio.ensure_future(second.media.enter())
        await asyncio.sleep(0)
        assert not waiting.done()
        getattr(first, end)()
        await asyncio.wait_for(waiting, 60)

    asyncio.run(play())


MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("path", "messages", "has_several"),
    [
        ("/v1/chat/completions", MESSAGES, False),
        ("/v1/chat/completions/batch", [MESSAGES, MESSAGES], True),
        ("/tokenize", MESSAGES, False),
    ],
)
def test_each_request_that_may_bring_media_carries_what_they_come_to(tmp_path, path, messages, has_several):
    carried = []

    async def app(scope, receive, send):
        carried.append(current_context())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    give_keys(tmp_path, acme="key-of-acme")
    give_zones(tmp_path, "acme")
    response = call(
        TenantMiddleware(app, settings(tmp_path)), path=path, body={"messages": messages}, key="key-of-acme"
    )
    assert response.status_code == 200
    assert carried[0].media.has_several_conversations == has_several
    assert current_context() is None


def test_a_request_with_an_option_that_enlarges_is_refused(tmp_path):
    give_keys(tmp_path, acme="key-of-acme")
    give_zones(tmp_path, "acme")
    body = {"messages": [], "mm_processor_kwargs": {"size": {"height": 10**6}}}
    response = call(
        TenantMiddleware(None, settings(tmp_path)), path="/v1/chat/completions", body=body, key="key-of-acme"
    )
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "mm_processor_kwargs"
