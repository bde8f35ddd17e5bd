"""Images, sounds and videos are measured before they are decoded, by vLLM's own fetcher and decoders."""

import asyncio
import base64
from dataclasses import replace
from io import BytesIO
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from PIL import Image
from vllm.multimodal.audio import AudioResampler
from vllm.multimodal.media import audio as stock_audio
from vllm.multimodal.media.connector import MediaConnector

from tenantzone_runtime.engine.patches.media import media_bounds
from tenantzone_runtime.engine.patches.media.media_bounds import bound_media
from tenantzone_runtime.engine.patches.media.media_measures import File, measure
from tenantzone_runtime.engine.versions import chat_utils
from tenantzone_runtime.frontend.body.media import BYTES_OF_PIXEL, AllMedia, MediaUse, TenantMedia
from tenantzone_runtime.frontend.responses.answers import Refusal
from tenantzone_runtime.settings import Bounds

BOUNDS = Bounds(
    max_media_items=8, max_image_pixels=10_000, max_request_pixels=40_000, max_audio_samples=1000,
    max_media_file_bytes=100_000, max_tenant_media_bytes=40_000 * BYTES_OF_PIXEL,
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def bounded():
    most = Image.MAX_IMAGE_PIXELS
    patched = [
        (chat_utils().AsyncMultiModalItemTracker, "resolve_items"),
        (MediaConnector, "load_from_url_async"),
        (stock_audio, "load_audio"),
        (AudioResampler, "resample"),
    ]
    stock = [getattr(*each) for each in patched]
    bound_media(BOUNDS)
    bound_media(BOUNDS)
    yield
    Image.MAX_IMAGE_PIXELS = most
    for each, value in zip(patched, stock, strict=True):
        setattr(*each, value)


def image(width=50, height=50, kind="PNG", **options):
    with BytesIO() as file:
        Image.new("RGB", (width, height)).save(file, kind, **options)
        return file.getvalue()


def url(data, kind="image/png"):
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def tracker_of(*items, tokens=lambda **size: 1, longest=100, modality="image"):
    """A vLLM tracker that only gathers items; vLLM's connector fetches each of them."""
    tracker = object.__new__(chat_utils().AsyncMultiModalItemTracker)
    connector = MediaConnector()
    fetch = {
        "image": connector.fetch_image_async,
        "video": connector.fetch_video_async,
        "audio": connector.fetch_audio_async,
    }[modality]

    def item(source):
        async def get():
            return await fetch(source), None

        return get

    tracker._items_by_modality = {modality: [item(each) for each in items]}
    info = SimpleNamespace(get_num_image_tokens=tokens)
    tracker._model_config = SimpleNamespace(max_model_len=longest, is_multimodal_model=False)
    tracker.__dict__["mm_processor"] = SimpleNamespace(info=info)
    return tracker


@pytest.fixture
def decoded(monkeypatch):
    """The sizes of the decoded images."""
    sizes = []
    load = Image.Image.load

    def counted(image):
        sizes.append(image.size)
        return load(image)

    monkeypatch.setattr(Image.Image, "load", counted)
    return sizes


async def load(tracker, use):
    from tenantzone_runtime.engine.patches.media.media_bounds import _load

    await _load(tracker, use)
    return [await item() for group in tracker._items_by_modality.values() for item in group]


def new_use(bounds=BOUNDS):
    return MediaUse(bounds, TenantMedia(AllMedia(bounds)))


def refusal(tracker, use=None):
    with pytest.raises((Refusal, ValueError)) as error:
        asyncio.run(load(tracker, use or new_use()))
    return error.value


@pytest.mark.parametrize("kind", ["PNG", "GIF", "WEBP", "JPEG", "BMP", "TIFF"])
def test_images_within_bounds_are_decoded_as_by_vllm(kind):
    source = url(image(60, 40, kind))
    ours = asyncio.run(load(tracker_of(source), new_use()))[0][0]
    stock = asyncio.run(MediaConnector().fetch_image_async(source))
    assert ours.media.tobytes() == stock.media.tobytes()
    assert ours.original_bytes == stock.original_bytes


@pytest.mark.parametrize("kind", ["PNG", "GIF", "WEBP"])
def test_an_image_that_is_too_large_is_refused_before_anything_is_decoded(kind, decoded):
    small, large = url(image()), url(image(101, 100, kind))
    decoded.clear()
    error = refusal(tracker_of(small, large))
    assert "TENANTZONE_MAX_IMAGE_PIXELS" in str(error)
    assert error.status == 413
    assert decoded == []


def test_images_that_are_too_large_together_are_refused_before_any_is_decoded(decoded):
    sources = [url(image(100, 100)) for _ in range(5)]
    decoded.clear()
    assert "TENANTZONE_MAX_REQUEST_PIXELS" in str(refusal(tracker_of(*sources)))
    assert decoded == []


def test_more_items_than_a_request_may_have_are_not_even_fetched():
    error = refusal(tracker_of(*["http://127.0.0.1:9/none.png"] * 9))
    assert "TENANTZONE_MAX_MEDIA_ITEMS" in str(error)
    assert error.status == 400


async def test_a_request_whose_files_never_come_does_not_keep_memory_from_other_tenants(monkeypatch):
    monkeypatch.setattr(media_bounds, "_FETCH_SECONDS", 0.2)
    is_asked, is_over = asyncio.Event(), asyncio.Event()

    async def serve(reader, writer):
        is_asked.set()
        await is_over.wait()
        writer.close()

    bounds = replace(BOUNDS, max_held_media_bytes=8 * BOUNDS.max_media_file_bytes)
    everyone = AllMedia(bounds)
    slow, other = (MediaUse(bounds, TenantMedia(everyone)) for _ in range(2))
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Refusal, match="could not be fetched") as refused:
            await load(tracker_of(*[f"http://127.0.0.1:{port}/{number}.png" for number in range(3)]), slow)
        assert refused.value.status == 422
        assert is_asked.is_set()
        is_over.set()
    slow.leave()
    await asyncio.wait_for(load(tracker_of(url(image())), other), 60)


def test_files_count_over_all_of_a_request():
    use = new_use()
    use.add_file(BOUNDS.max_media_file_bytes - 10)
    assert "TENANTZONE_MAX_MEDIA_FILE_BYTES" in str(refusal(tracker_of(url(image())), use))


def test_more_images_than_the_model_can_read_are_refused_before_any_is_decoded(decoded):
    sources = [url(image())] * 3
    decoded.clear()
    error = refusal(tracker_of(*sources, tokens=lambda image_width, image_height: 40))
    assert "120 tokens" in str(error)
    assert decoded == []


def test_a_model_that_needs_more_to_count_tokens_has_its_images_decoded():
    tracker = tracker_of(url(image()), tokens=lambda image_width, image_height, image_processor: 1)
    assert len(asyncio.run(load(tracker, new_use()))) == 1


def test_an_icon_counts_as_the_largest_image_whatever_its_header_says():
    data = image(16, 16, "ICO", sizes=[(16, 16)])
    size = measure(File(MediaConnectorIO.image(), data), BOUNDS)
    assert size.width * size.height == BOUNDS.max_image_pixels


class MediaConnectorIO:
    @staticmethod
    def image():
        from vllm.multimodal.media import ImageMediaIO

        return ImageMediaIO()


@pytest.fixture
def video(tmp_path):
    def make(frames, width=40, height=20):
        path = tmp_path / "video.avi"
        writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 10, (width, height))
        for number in range(frames):
            writer.write(np.full((height, width, 3), number, np.uint8))
        writer.release()
        return path.read_bytes()

    return make


def test_a_video_is_decoded_as_by_vllm_and_counts_the_frames_that_are_chosen(video):
    source = url(video(45), "video/avi")
    use = new_use()
    ours = asyncio.run(load(tracker_of(source, modality="video"), use))[0][0]
    stock = asyncio.run(MediaConnector().fetch_video_async(source))
    assert np.array_equal(ours.media[0], stock.media[0])
    assert use.pixels_left == BOUNDS.max_request_pixels - 32 * 5000 // 4


def test_a_video_with_too_many_pixels_is_refused_before_a_frame_is_read(video, monkeypatch):
    from vllm.multimodal.video_decoders.opencv import OpenCVVideoBackendMixin

    read = []
    monkeypatch.setattr(OpenCVVideoBackendMixin, "read_frames", lambda *args, **kwargs: read.append(args))
    error = refusal(tracker_of(url(video(60, 60, 40), "video/avi"), modality="video"))
    assert "TENANTZONE_MAX_REQUEST_PIXELS" in str(error)
    assert read == []


def test_a_video_of_images_counts_each_of_them():
    frames = ",".join(base64.b64encode(image(80, 80, "JPEG")).decode() for _ in range(7))
    error = refusal(tracker_of(f"data:video/jpeg;base64,{frames}", modality="video"))
    assert "TENANTZONE_MAX_REQUEST_PIXELS" in str(error)


class _Sounds:
    """Stands in for the library with which vLLM decodes sounds, which is not installed here."""

    def load_audio(self, *args, max_decode_bytes=None, **kwargs):
        self.limit = max_decode_bytes
        raise ValueError("Audio decode exceeded. Set VLLM_MAX_AUDIO_DECODE_BYTES to increase this limit.")


def test_a_sound_is_decoded_up_to_the_samples_of_a_request(monkeypatch):
    from tenantzone_runtime.engine.patches.media.media_measures import bound_sounds

    sounds = _Sounds()
    monkeypatch.setattr(stock_audio, "load_audio", sounds.load_audio)
    bound_sounds()
    error = refusal(tracker_of(url(b"no sound", "audio/wav"), modality="audio"))
    assert "TENANTZONE_MAX_AUDIO_SAMPLES" in str(error)
    assert sounds.limit == 4 * BOUNDS.max_audio_samples


def test_a_server_without_a_library_for_sounds_says_which():
    error = refusal(tracker_of(url(b"no sound", "audio/wav"), modality="audio"))
    assert isinstance(error, ValueError)
    assert "can't read sounds, because av is missing" in str(error)


def test_a_server_without_a_library_that_changes_rates_says_which():
    with pytest.raises(ValueError, match="can't change the sampling rate of sounds, because torchaudio is missing"):
        AudioResampler(target_sr=16000).resample(np.zeros(100, np.float32), orig_sr=8000)


def test_a_tenants_next_request_waits_for_memory_and_other_tenants_do_not():
    async def play():
        tenant = TenantMedia(AllMedia(BOUNDS))
        first, second, foreign = MediaUse(BOUNDS, tenant), MediaUse(BOUNDS, tenant), new_use()
        sources = [url(image(100, 100))] * 3
        await load(tracker_of(*sources), first)
        waiting = asyncio.ensure_future(load(tracker_of(*sources), second))
        await load(tracker_of(*sources), foreign)
        for _ in range(50):
            await asyncio.sleep(0)
        assert not waiting.done()
        first.leave()
        first.leave()
        assert len(await waiting) == 3

    asyncio.run(play())


def test_several_conversations_of_a_body_do_not_wait_for_each_other():
    async def play():
        use = new_use()
        use.has_several_conversations = True
        for _ in range(2):
            await load(tracker_of(url(image(100, 100))), use)

    asyncio.run(asyncio.wait_for(play(), 60))


def test_requests_past_the_frontend_are_as_in_vllm():
    source = url(image(300, 300))
    Image.MAX_IMAGE_PIXELS, most = None, Image.MAX_IMAGE_PIXELS
    try:
        assert asyncio.run(MediaConnector().fetch_image_async(source)).size == (300, 300)
    finally:
        Image.MAX_IMAGE_PIXELS = most
