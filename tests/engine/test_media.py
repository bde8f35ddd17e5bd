"""Images of several tenants: which tenant finds whose encodings, whose go when the cache is full, and who waits."""

from unittest.mock import patch

import pytest
import vllm
from packaging.version import Version

from hack.harness.scheduler import Driver, give_encoder, make_scheduler, prompt, vllm_config
from tenantzone_contract.reports.report import ConfigStatus, EncoderUseReport
from tenantzone_contract.zone_config.zone_terms import Lending, Retention
from tenantzone_runtime.housekeeping.report.reporting import make_report
from tenantzone_runtime.zones.resources.adapter_turns import TURN_STEPS
from tests.engine.clock import Clock
from tests.engine.measured import abort, zone

IMAGE = 100
"""The number of its embeddings, and of its tokens."""


@pytest.fixture
def config(tmp_path):
    return vllm_config(tmp_path, max_batched_tokens=512)


@pytest.fixture
def make(config):
    """Makes a driver whose encoder makes ``budget`` images in a step and remembers ``cache``."""
    made = []

    def driver_of(*, budget=4, cache=4, zones=True, capacity=400):
        driver = Driver(make_scheduler(config, capacity, zones=zones))
        give_encoder(driver.scheduler, budget=budget * IMAGE, cache=cache * IMAGE)
        made.append(driver)
        return driver

    yield driver_of
    for driver in made:
        driver.scheduler.shutdown()


def image(name, offset=16):
    return [(name, offset, IMAGE)]


def encoded(output):
    """The number of images that each request has encoded in a step."""
    return {name: len(inputs) for name, inputs in output.scheduled_encoder_inputs.items()}


def show(driver, tenant, name, **arguments):
    """Sends a tenant's question about an image. Returns the number of images encoded for it."""
    driver.send(tenant, prompt(10), images=image(name), **arguments)
    count = 0
    while driver.scheduler.has_unfinished_requests():
        output, result = driver.schedule()
        count += sum(encoded(output).values())
        driver.update(output, result)
    driver.check()
    return count


@pytest.mark.shows("multimodal models")
def test_an_image_that_a_tenant_has_shown_is_not_encoded_again_for_it_and_is_for_others(make):
    driver = make()
    driver.declare(zone("acme"), zone("burst"))
    assert show(driver, "acme", "cat") == 1
    assert show(driver, "acme", "cat") == 0
    assert show(driver, "burst", "cat") == 1


@pytest.mark.shows("multimodal models")
def test_a_request_whose_image_has_a_name_of_another_tenant_is_refused(make):
    driver = make()
    driver.declare(zone("acme"), zone("burst"))
    request = driver.ask("burst", prompt(10), images=image("cat"), foreign_images=True)
    assert driver.finished[request.request_id] == "error"
    assert "names that do not belong to its tenant" in driver.stop_reasons[request.request_id]


@pytest.mark.shows("multimodal models")
def test_a_flood_of_images_leaves_a_zone_the_part_of_the_cache_that_goes_with_its_reservation(make):
    driver = make(cache=4)
    driver.declare(zone("acme", reserved="50%"), zone("burst"))
    assert show(driver, "acme", "cat") + show(driver, "acme", "dog") == 2
    for number in range(10):
        assert show(driver, "burst", f"noise {number}") == 1
    assert show(driver, "acme", "cat") + show(driver, "acme", "dog") == 0


def test_without_a_reservation_the_longest_unused_goes_as_in_vllm(make, config):
    ours, stock = make(cache=3), make(cache=3, zones=False)
    ours.declare(zone("acme"), zone("burst"))
    names = ["a", "b", "c", "d", "a", "b", "d", "e", "a", "c"]
    assert [show(ours, "acme", name) for name in names] == [show(stock, None, name) for name in names]


def test_what_is_beyond_its_own_part_a_zone_loses_before_others_lose_theirs(make):
    driver = make(cache=4)
    driver.declare(zone("acme", reserved="25%"), zone("burst", reserved="50%"))
    for name in ("cat", "dog"):
        show(driver, "acme", name)
    for name in ("one", "two", "three"):
        show(driver, "burst", name)
    assert show(driver, "acme", "dog") == 0
    assert show(driver, "burst", "three") == 0


@pytest.mark.shows("multimodal models")
def test_where_the_encoder_has_no_room_in_a_step_zones_without_images_are_admitted_nevertheless(make):
    driver = make(budget=1, cache=8)
    driver.declare(zone("acme"), zone("burst"), zone("text"))
    shown = [driver.send(tenant, prompt(10), images=image(str(n), 0)) for n, tenant in enumerate(("acme", "burst"))]
    text = driver.send("text", prompt(10))
    output, result = driver.schedule()
    assert sum(encoded(output).values()) == 1
    assert text.request_id in output.num_scheduled_tokens
    driver.update(output, result)
    output, result = driver.schedule()
    assert sum(encoded(output).values()) == 1
    driver.update(output, result)
    driver.run()
    assert all(driver.finished[request.request_id] == "length" for request in (*shown, text))


def test_a_cache_full_of_what_others_use_holds_back_only_who_needs_room_in_it(make):
    driver = make(budget=8, cache=2)
    driver.declare(zone("acme"), zone("burst"), zone("text"))
    # Long prompts after the image, so that it stays in use for several steps.
    for name in ("one", "two"):
        driver.send("burst", prompt(100), images=[(name, 0, IMAGE), (f"{name} later", 900, IMAGE)])
    driver.step()
    waiting = driver.send("acme", prompt(10), images=image("cat", 0))
    text = driver.send("text", prompt(2))
    scheduled = driver.step()
    assert text.request_id in scheduled
    driver.run()
    assert driver.finished[waiting.request_id] == "length"


def test_an_image_within_a_cached_prefix_needs_no_room(make):
    driver = make(budget=8, cache=1)
    driver.declare(zone("acme", reserved="50%"), zone("burst"))
    asked = prompt(10, seed=1)
    driver.ask("acme", asked, images=image("cat", 0))
    show(driver, "burst", "dog")
    request = driver.send("acme", asked, images=image("cat", 0))
    driver.send("burst", prompt(100), images=[("other", 0, IMAGE)])
    output, result = driver.schedule()
    assert request.request_id in output.num_scheduled_tokens
    assert request.request_id not in output.scheduled_encoder_inputs
    driver.update(output, result)
    driver.run()


@pytest.mark.shows("multimodal models")
def test_a_zone_that_stores_nothing_has_its_image_encoded_each_time(make):
    driver = make()
    driver.declare(zone("acme", retention=Retention(no_store=True)))
    assert [show(driver, "acme", "cat") for _ in range(3)] == [1, 1, 1]
    assert driver.scheduler.encoder_cache_manager.cached == {}


@pytest.mark.shows("multimodal models")
def test_an_image_is_forgotten_when_it_was_not_used_for_the_ttl(clock: Clock, make):
    driver = make()
    driver.declare(zone("acme", retention=Retention(ttl_seconds=60.0)), zone("burst"))
    show(driver, "acme", "cat")
    show(driver, "burst", "cat")
    clock.seconds += 61.0
    driver.scheduler.let_time_pass()
    assert show(driver, "acme", "cat") == 1
    assert show(driver, "burst", "cat") == 0


@pytest.mark.shows("multimodal models")
def test_a_purge_forgets_images_and_those_in_use_once_they_are_not(make):
    driver = make()
    driver.declare(zone("acme"), zone("burst"))
    for tenant in ("acme", "burst"):
        show(driver, tenant, "cat")
    running = driver.send("acme", prompt(100), images=image("dog", 1000))
    # Between two steps that compute its tokens.
    for _ in range(2):
        driver.step()
    assert driver.scheduler.encoder_cache_manager.get_cached_input_ids(running) == {0}
    driver.declare(zone("acme", purge="now"), zone("burst"))
    driver.run()
    assert driver.finished[running.request_id] == "length"
    assert show(driver, "acme", "cat") + show(driver, "acme", "dog") == 2
    assert show(driver, "burst", "cat") == 0


@pytest.mark.shows("multimodal models")
def test_a_zone_that_is_deleted_leaves_no_image(make):
    driver = make()
    driver.declare(zone("acme"), zone("burst"))
    show(driver, "acme", "cat")
    driver.declare(zone("burst"))
    cache = driver.scheduler.encoder_cache_manager
    assert cache.cached == {}
    assert cache.num_free_slots == cache.num_freeable_slots == cache.cache_size


def test_requests_that_are_aborted_leave_room(make):
    driver = make(cache=2)
    driver.declare(zone("acme"), zone("burst"))
    begun = [driver.send("burst", prompt(100), images=image(f"{n}", 0)) for n in range(2)]
    driver.step()
    for request in begun:
        abort(driver, request)
    assert show(driver, "acme", "cat") == 1
    cache = driver.scheduler.encoder_cache_manager
    assert cache.num_freeable_slots == cache.cache_size


@pytest.mark.parametrize("tenants", [("acme", "burst"), ("acme", "burst", "calm", "dusk")])
@pytest.mark.shows("multimodal models")
def test_an_image_whose_tokens_attend_to_each_other_is_computed_in_one_step(make, config, tenants):
    """As vLLM requires for models such as Gemma 3: a zone whose share of the step is less than an image saves it up."""
    config.scheduler_config.disable_chunked_mm_input = True
    driver = make(budget=8, cache=8, capacity=1000)
    driver.declare(*(zone(tenant) for tenant in tenants))
    size = 400
    places = [(8, size), (8 + size, size), (3 * size, size)]
    for tenant in tenants:
        for _ in range(2):
            shown = [(f"{tenant} {place}", place, length) for place, length in places]
            driver.send(tenant, prompt(110), images=shown, max_tokens=4)
    shared = 0
    while driver.scheduler.has_unfinished_requests():
        running = {each: each.num_computed_tokens for each in driver.scheduler.requests.values()}
        output, result = driver.schedule()
        in_prompts = {name for name in output.num_scheduled_tokens if driver.scheduler.requests[name].is_prefill_chunk}
        shared += len(in_prompts) > 1
        for request, before in running.items():
            after = request.num_computed_tokens
            cut = [place for place, length in places if before <= place < after < place + length]
            assert not cut, f"{request.request_id} from {before} to {after}"
        assert output.total_num_scheduled_tokens, "an empty step"
        driver.update(output, result)
    driver.check()
    assert shared
    assert set(driver.finished.values()) == {"length"}
    assert len(driver.finished) == 2 * len(tenants)


@pytest.mark.skipif(Version(vllm.__version__) >= Version("0.33.dev0"), reason="0.33 waits for such a step for ever")
@pytest.mark.parametrize("threshold", [0, 300])
def test_an_image_for_which_no_step_has_the_tokens_is_cut_as_in_vllm(make, config, threshold):
    config.scheduler_config.disable_chunked_mm_input = True
    config.scheduler_config.long_prefill_token_threshold = threshold
    driver = make(budget=8, cache=16)
    driver.declare(zone("acme"), zone("burst"))
    sent = [
        driver.send(tenant, prompt(60), images=[("cat", 16, 400 if threshold else 600)]) for tenant in ("acme", "burst")
    ]
    driver.run()
    assert [driver.finished[request.request_id] for request in sent] == ["length"] * 2


def test_who_waits_for_room_in_the_encoder_leaves_the_step_to_who_has_it(make):
    """However little of a step is its own: its room in the encoder is freed as it goes on."""
    driver = make(budget=1, cache=1)
    driver.declare(zone("acme"), zone("burst", weight=7))
    burst = driver.send("burst", prompt(60), images=image("dog", 600))
    acme = driver.send("acme", prompt(60), images=image("cat", 60))
    driver.step()
    driver.step()
    assert (burst.num_computed_tokens, acme.num_computed_tokens) == (600, 128), "each before an image, or in its midst"
    assert driver.step() == [acme.request_id]
    assert acme.num_computed_tokens == 128 + 512
    driver.run()
    assert set(driver.finished.values()) == {"length"}


def stream(driver, tenant, count, images_each=12):
    """Requests of a tenant, each with one new image after another."""
    for number in range(count):
        shown = [(f"{tenant} {number} {place}", IMAGE * place, IMAGE) for place in range(images_each)]
        driver.send(tenant, prompt(IMAGE * images_each // 16), images=shown)


def steps_until_encoded(driver, request, at_most=100):
    """Steps until an image of the request is encoded. Returns the number of steps."""
    for steps in range(at_most):
        output, result = driver.schedule()
        driver.update(output, result)
        driver.check()
        if request.request_id in output.scheduled_encoder_inputs:
            return steps
    raise AssertionError(f"no image is encoded in {at_most} steps")


def test_no_image_of_a_borrower_enters_while_an_entitled_zone_waits_for_room(make, config):
    config.scheduler_config.max_num_batched_tokens = config.scheduler_config.max_num_seqs
    driver = make(budget=4, cache=1, capacity=1200)
    driver.declare(zone("acme", reserved="50%", lending=Lending(grace_seconds=1000.0)), zone("burst"))
    stream(driver, "burst", 4)
    driver.step()
    report = make_report(driver.served, ConfigStatus(), pod="p", started_unix_time=0.0)
    assert report.encoder_embeddings == IMAGE
    assert report.encoder_use == (EncoderUseReport(tenant="burst", embeddings=IMAGE),)
    waiting = driver.send("acme", prompt(7), images=image("cat", 0))
    driver.step()
    assert driver.zone("acme").wait_reason == "encoder"
    assert steps_until_encoded(driver, waiting) < 12
    assert driver.zone("burst").counters.preemptions == 0, "what it had begun was computed"
    driver.run(1000)
    assert set(driver.finished.values()) == {"length"}


def test_borrowers_that_hold_room_in_the_encoder_are_preempted_after_the_grace(clock: Clock, make):
    driver = make(budget=4, cache=2, capacity=1200)
    driver.declare(zone("acme", reserved="50%", lending=Lending(grace_seconds=30.0)), zone("burst"))
    held = driver.send("burst", prompt(14), images=[("held", 0, 2 * IMAGE)])
    output, result = driver.schedule()
    assert held.request_id in output.scheduled_encoder_inputs
    # Until the result of its step arrives, the borrower holds what it has encoded.
    waiting = driver.send("acme", prompt(7), images=image("cat", 0))
    for _ in range(TURN_STEPS + 2):
        driver.update(*driver.schedule())
    assert driver.zone("burst").counters.preemptions == 0, "the grace is not over"
    clock.seconds += 31.0
    assert steps_until_encoded(driver, waiting) <= 3
    assert driver.zone("burst").counters.preemptions == 1
    driver.update(output, result)
    driver.run()
    assert driver.finished[waiting.request_id] == driver.finished[held.request_id] == "length"


def test_entitled_zones_have_room_in_the_encoder_in_turn(make):
    driver = make(budget=1, cache=1, capacity=1200)
    driver.declare(*(zone(tenant, reserved="30%") for tenant in ("acme", "burst", "calm")))
    for tenant in ("acme", "burst", "calm"):
        stream(driver, tenant, 2, images_each=6)
    turns = []
    while driver.scheduler.has_unfinished_requests():
        output, result = driver.schedule()
        turns += [name.split("-")[0] for name in output.scheduled_encoder_inputs]
        driver.update(output, result)
    for begin in range(0, len(turns) - 9, 3):
        assert {"acme", "burst", "calm"} == set(turns[begin : begin + 5]), turns


def test_an_engine_without_media_has_no_request_wait_for_the_encoder(make):
    driver = make()
    driver.declare(zone("acme", reserved="50%"), zone("burst"))
    room = driver.scheduler._arbiter.encoder
    with patch.object(type(room), "_waiters", side_effect=AssertionError("it looks for zones that wait")):
        for tenant in ("acme", "burst"):
            driver.ask(tenant, prompt(10))


@pytest.mark.parametrize("are_whole", [False, True])
def test_no_image_is_encoded_before_a_request_has_its_share_of_the_step(make, config, are_whole):
    """Otherwise it would take room in the encoder and its cache from zones whose turn it is."""
    config.scheduler_config.disable_chunked_mm_input = are_whole
    driver = make(budget=8, cache=20, capacity=1000)
    driver.declare(*(zone(tenant) for tenant in ("acme", "burst", "calm")))
    places = [16 + 150 * number for number in range(6)]
    for tenant in ("acme", "burst", "calm"):
        for _ in range(2):
            driver.send(tenant, prompt(60), images=[(f"{tenant} {place}", place, IMAGE) for place in places])
    while driver.scheduler.has_unfinished_requests():
        output, result = driver.schedule()
        for name, images in output.scheduled_encoder_inputs.items():
            computed = driver.scheduler.requests[name].num_computed_tokens
            assert all(places[image] < computed for image in images)
        driver.update(output, result)
    driver.check()
    assert set(driver.finished.values()) == {"length"}


def test_an_image_that_is_cached_is_not_encoded_again_when_its_zone_may_not_use_it_in_a_step(make):
    driver = make()
    driver.declare(zone("acme"))
    assert show(driver, "acme", "cat") == 1
    driver.send("acme", prompt(10), images=image("cat"))
    (request,) = driver.scheduler.requests.values()
    cache = driver.scheduler.encoder_cache_manager
    free = cache.num_free_slots
    with patch.object(cache.room, "may_have", lambda *_: False):
        assert not cache.check_and_update_cache(request, 0)
    # There is room by now: a request of another zone may have ended in between.
    assert not cache.can_allocate(request, 0, 4 * IMAGE, 0)
    assert cache.num_free_slots == free
    assert cache.check_and_update_cache(request, 0)
