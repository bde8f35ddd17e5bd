"""The names under which vLLM's caches find images: no two tenants share a name, whatever the client calls an image."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from vllm.multimodal.parse import ImageProcessorItems, MultiModalDataItems
from vllm.multimodal.processing.inputs import ProcessorInputs
from vllm.renderers.base import BaseRenderer

from tenantzone_contract.keys.salt import new_salt_key, tenant_salt
from tenantzone_runtime.engine.patches.media.media_names import name_media_by_tenant, owner_in

RED, BLUE = (Image.new("RGB", (8, 8), colour) for colour in ("red", "blue"))


class Renderer:
    """Stands in for vLLM's renderer, and keeps the names of the images to process."""

    def __init__(self):
        self.names = []
        self.passed_on = []

    def _process_multimodal(self, prompt, data, mm_uuids=None, mm_processor_kwargs=None, media_io_kwargs=None, **_):
        inputs = ProcessorInputs(
            prompt,
            MultiModalDataItems({"image": ImageProcessorItems(data["image"])}),
            mm_uuids,
            hf_processor_mm_kwargs=mm_processor_kwargs or {},
            media_io_kwargs=media_io_kwargs or {},
        )
        self.names += inputs.get_mm_hashes("model", "sha256")["image"]
        # A second call in the same request returns the same names.
        assert inputs.get_mm_hashes("model", "sha256")["image"] == self.names[-len(data["image"]) :]
        return {"type": "multimodal"}


@pytest.fixture(scope="module", autouse=True)
def named():
    name_media_by_tenant()
    name_media_by_tenant()


def names(salt, *images, uuids=None, **kwargs):
    renderer = Renderer()
    prompt = {"prompt_token_ids": [1], "multi_modal_data": {"image": list(images)}, **kwargs}
    if uuids is not None:
        prompt["multi_modal_uuids"] = {"image": uuids}
    if salt:
        prompt["cache_salt"] = salt
    BaseRenderer._process_tokens(renderer, prompt)
    return renderer.names


def test_an_image_has_another_name_for_each_tenant_and_always_the_same_for_one():
    assert names("acme", RED) == names("acme", RED)
    assert names("acme", RED) != names("acme", BLUE)
    assert set(names("acme", RED, BLUE)).isdisjoint(names("burst", RED, BLUE))


@pytest.mark.shows("multimodal models")
def test_what_a_client_calls_an_image_is_a_name_among_its_own_only():
    assert names("acme", RED, uuids=["cat"]) == names("acme", BLUE, uuids=["cat"])
    assert names("acme", RED, uuids=["cat"]) != names("burst", RED, uuids=["cat"])
    (acme,) = names("acme", RED)
    assert acme not in names("burst", BLUE, uuids=[acme])


def test_options_that_change_what_is_made_of_an_image_still_change_its_name():
    options = {"mm_processor_kwargs": {"size": 3}, "media_io_kwargs": {"image": {"mode": "L"}}}
    for name, value in options.items():
        assert names("acme", RED, **{name: value}) != names("acme", RED)
        assert names("acme", RED, **{name: value}) != names("burst", RED, **{name: value})


def test_without_a_salt_the_names_are_vllms_own():
    (salted,), (plain,) = names("acme", RED), names("", RED)
    assert salted == owner_in("acme") + plain


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=60), st.text(max_size=60))
def test_no_two_tenants_ever_share_a_name(one, other, mine, theirs):
    key = new_salt_key()
    salts = tenant_salt(key, one), tenant_salt(key, other)
    shared = {owner_in(salts[0]) + mine} & {owner_in(salts[1]) + theirs}
    assert bool(shared) == (one == other and mine == theirs)
