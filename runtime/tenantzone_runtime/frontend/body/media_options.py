"""Limits a request's options for decoding and resizing media.

vLLM passes these options unchecked to its decoders and to the model's processor. They can enlarge an image of one pixel
to any size.
"""

from collections.abc import Mapping
from math import isqrt
from typing import Any, Final

from tenantzone_runtime.frontend.body.media import least_pixels
from tenantzone_runtime.frontend.responses.answers import Refusal
from tenantzone_runtime.settings import Bounds

_PROCESSOR: Final = "mm_processor_kwargs"
_DECODERS: Final = "media_io_kwargs"
_SIZES: Final = frozenset({"size", "crop_size"})
_EDGES: Final = frozenset({"height", "width", "shortest_edge", "longest_edge"})
_FEWEST_PIXELS: Final = "min_pixels"
_MOST_PIXELS: Final = "max_pixels"
_FRAMES: Final = frozenset({"fps", "num_frames", "min_frames", "max_frames"})
"""Options that select frames of a video. They need no check here, because `MediaUse.add_video` limits the frames."""
_OF_DECODERS: Final[Mapping[str, frozenset[str]]] = {
    "image": frozenset({"image_mode", "rgba_background_color"}),
    "video": _FRAMES
    | {
        "video_backend",
        "backend",
        "max_duration",
        "frame_recovery",
        "frames_indices",
        "total_num_frames",
        "duration",
        "do_sample_frames",
        "overflow_strategy",
    },
    "audio": frozenset({"audio_backend"}),
}


def check_media_options(body: Mapping[str, Any], bounds: Bounds) -> None:
    """Check that a request's media options can't enlarge an image beyond the size with which it is counted.

    Args:
        body: the parsed body.
        bounds: the settings with the limits of pixels.

    Raises:
        Refusal: an option exceeds its limit or is unknown. The message names the option.
    """
    for name, value in _options(body, _PROCESSOR).items():
        _check_of_processor(name, value, bounds)
    for modality, options in _options(body, _DECODERS).items():
        if not isinstance(options, dict | None):
            raise _refused(f"'{_DECODERS}.{modality[:100]}' must be an object", _DECODERS)
        for name in options or {}:
            if name not in _OF_DECODERS.get(modality, frozenset()):
                raise _unknown(_DECODERS, f"{modality}.{name}")


def _options(body: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = body.get(field)
    if not isinstance(value, dict | None):
        raise _refused(f"'{field}' must be an object", field)
    return value or {}


def _check_of_processor(name: str, value: object, bounds: Bounds) -> None:
    if value is None or isinstance(value, bool) or name in _FRAMES:
        return
    least = least_pixels(bounds)
    if name in _SIZES:
        edges = value if isinstance(value, dict) else {"height": value}
        for edge, length in edges.items():
            if edge not in _EDGES:
                raise _unknown(_PROCESSOR, f"{name}.{edge}")
            _check_number(f"{name}.{edge}", length, isqrt(least))
    elif name == _FEWEST_PIXELS:
        _check_number(name, value, least)
    elif name == _MOST_PIXELS:
        _check_number(name, value, bounds.max_image_pixels)
    else:
        raise _unknown(_PROCESSOR, name)


def _check_number(name: str, value: object, most: int) -> None:
    if value is not None and (not isinstance(value, int | float) or not 0 <= value <= most):
        raise _refused(f"'{_PROCESSOR}.{name}' must be a number from 0 to {most}", _PROCESSOR)


def _unknown(field: str, name: str) -> Refusal:
    flag = "--" + field.replace("_", "-")
    message = (
        f"'{field}.{name[:100]}' is not supported, because its cost can't be limited; omit it, or set it for all "
        f"requests with the engine's flag {flag}"
    )
    return _refused(message, field)


def _refused(message: str, field: str) -> Refusal:
    return Refusal(400, "large_media", message, param=field)
