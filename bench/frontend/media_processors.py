"""Processors of transformers for `bench.frontend.media_memory`, with real models' settings; nothing is downloaded."""

from collections.abc import Callable, Sequence
from typing import Any, Final

_RATE: Final = 16_000
Process = Callable[[Sequence[Any]], Any]
"""Function that converts a request's media, as decoded by vLLM's connector, to the model's input."""


def _none() -> Process:
    return lambda media: media


def _pixels() -> Process:
    """Returns Qwen2-VL's image processor, which keeps the size of images, up to the largest that clients may send."""
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

    from tenantzone_runtime.settings import Bounds

    processor = Qwen2VLImageProcessor(min_pixels=3136, max_pixels=Bounds().max_image_pixels)
    return lambda media: (media, processor(images=[each.media for each in media], return_tensors="pt"))


def _clip() -> Process:
    """Returns LLaVA's image processor, which scales each image down."""
    from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil

    processor = LlavaImageProcessorPil()
    return lambda media: (media, processor(images=[each.media for each in media], return_tensors="pt"))


def _frames() -> Process:
    """Returns Qwen2-VL's video processor."""
    from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

    processor = Qwen2VLVideoProcessor(min_pixels=128 * 28 * 28, max_pixels=2**25, cap_pixels_per_frame=False)

    def process(media: Sequence[Any]) -> Any:
        videos = [each.media[0] if hasattr(each, "media") else each[0] for each in media]
        return media, processor(videos=videos, return_tensors="pt", do_sample_frames=False)

    return process


def _whisper() -> Process:
    """Returns Whisper's feature extractor, preceded by vLLM's resampling."""
    from transformers import WhisperFeatureExtractor
    from vllm.multimodal.parse import MultiModalDataParser

    parser = MultiModalDataParser(target_sr=_RATE, target_channels=1, audio_resample_method="pyav")
    extract = WhisperFeatureExtractor(feature_size=128)

    def process(media: Sequence[Any]) -> Any:
        sounds = parser.parse_mm_data({"audio": [getattr(each, "media", each) for each in media]})["audio"].get_all()
        return media, sounds, extract(sounds, sampling_rate=_RATE, return_tensors="pt", truncation=False)

    return process


PROCESSORS: Final[dict[str, Callable[[], Process]]] = {
    "none": _none,
    "pixels": _pixels,
    "clip": _clip,
    "frames": _frames,
    "whisper": _whisper,
}
