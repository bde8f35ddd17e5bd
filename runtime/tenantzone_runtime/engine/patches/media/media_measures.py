"""Measures images, sounds and videos by their headers, and refuses files that decode to more than the measured size.

Upstream change that would make this module unnecessary: a plugin in vLLM's media connector between fetching and
decoding.
"""

from __future__ import annotations

import threading
from copy import copy
from dataclasses import dataclass
from functools import wraps
from io import BytesIO
from typing import Any, Final

import pybase64
from PIL import Image
from vllm.multimodal.audio import AudioResampler
from vllm.multimodal.media import audio as stock_audio
from vllm.multimodal.media.audio import AudioMediaIO
from vllm.multimodal.media.image import ImageMediaIO
from vllm.multimodal.media.video import VideoMediaIO

from tenantzone_runtime.frontend.body.media import too_large_image, too_many_samples
from tenantzone_runtime.settings import Bounds

_FRAMES_TYPE: Final = "video/jpeg"
"""Media type of a video that is sent as comma-separated base64 images."""
_WITH_IMAGES_INSIDE: Final = frozenset({"ICO", "ICNS"})
"""Image formats in which the file's header may not describe the sizes of the images in the file."""
_BYTES_OF_SAMPLE: Final = 4
"""Size of a decoded sample in bytes, to convert a number of samples to vLLM's limit in bytes."""
_MODEL_RATE: Final = 16_000
"""Sampling rate in Hz of the single channel to which vLLM resamples a sound for most models."""
_PADDING_SAMPLES: Final = 2**17
"""A sound may have 1.25 times the samples in its header plus this number, because the header may be an estimate."""

_decoding = threading.local()
"""Has the attribute `samples`: maximum number of samples for the sound that this thread decodes. None for no limit."""


@dataclass(frozen=True, slots=True)
class File:
    """A file that was fetched and is not decoded yet."""

    io: Any
    """vLLM's decoder of the file."""
    data: bytes
    are_frames: bool = False
    """Whether the file is a video that was sent as base64 images."""

    @classmethod
    def of_base64(cls, io: Any, media_type: str, data: str) -> File:
        """Returns the file that a data URL contains.

        Raises:
            ValueError: the data is not base64.
        """
        if isinstance(io, VideoMediaIO) and media_type.lower() == _FRAMES_TYPE:
            return cls(io, data.encode(), are_frames=True)
        return cls(io, pybase64.b64decode(data, validate=True))


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a file after decoding."""

    width: int = 0
    height: int = 0
    frames: int = 0
    """Number of images of ``width`` x ``height`` pixels, or 0 for a sound."""
    samples: int = 0
    """Number of samples in all channels of a sound. If the header has no number, the maximum for a request."""
    is_image: bool = False


class _Measured(Exception):
    """Raised to stop vLLM's loader of a video when the number of frames to decode is known."""

    def __init__(self, frames: int) -> None:
        super().__init__()
        self.frames = frames


def measure(file: File, bounds: Bounds) -> Size:
    """Read the decoded size of a file from its headers.

    Raises:
        Refusal: an image is larger than the limit.
        ValueError: vLLM can't read the file.
    """
    if isinstance(file.io, ImageMediaIO):
        width, height = _image_size(file.data, bounds)
        return Size(width, height, frames=1, is_image=True)
    if isinstance(file.io, VideoMediaIO):
        return _video_size(file, bounds)
    if isinstance(file.io, AudioMediaIO):
        return Size(samples=_samples(file.data) or bounds.max_audio_samples)
    return Size()


def decode(file: File, size: Size, bounds: Bounds) -> Any:
    """Decode a file by vLLM's decoder.

    Args:
        file: the file to decode.
        size: the size that ``measure`` has returned.
        bounds: the bounds of a request.

    Raises:
        Refusal: a sound has more samples than the bounds allow.
        ValueError: vLLM can't read the file, or the decoded data is larger than the file's header states.
    """
    if isinstance(file.io, AudioMediaIO):
        return _decoded_sound(file, size.samples, bounds)
    if file.are_frames:
        return file.io.load_base64(_FRAMES_TYPE, file.data.decode())
    decoded = file.io.load_bytes(file.data)
    if isinstance(file.io, VideoMediaIO):
        frames = decoded[0]
        if frames.shape[0] * frames.shape[1] * frames.shape[2] > size.width * size.height * size.frames:
            raise ValueError("The video's frames are larger than its header states; send another file")
    return decoded


def bound_sounds() -> None:
    """Make vLLM's sound decoders stop at the calling thread's limit in ``_decoding``.

    Also, if a library is missing, makes vLLM answer with 400 and the name of the library instead of with 500.
    """
    load, resample = stock_audio.load_audio, AudioResampler.resample

    @wraps(load)
    def load_bounded(*args: Any, **kwargs: Any) -> Any:
        samples = getattr(_decoding, "samples", None)
        if samples is not None:
            given = kwargs.get("max_decode_bytes")
            limit = samples * _BYTES_OF_SAMPLE
            kwargs["max_decode_bytes"] = limit if given is None else min(given, limit)
        return load(*args, **kwargs)

    @wraps(resample)
    def resample_or_name_library(*args: Any, **kwargs: Any) -> Any:
        try:
            return resample(*args, **kwargs)
        except ImportError as error:
            raise _missing_library("can't change the sampling rate of sounds", error) from None

    if not hasattr(load, "__wrapped__"):
        stock_audio.load_audio = load_bounded
    if not hasattr(resample, "__wrapped__"):
        AudioResampler.resample = resample_or_name_library


def _missing_library(what: str, error: ImportError) -> ValueError:
    # Find the innermost error, because vLLM wraps the error that names the library in an error about vLLM's extras.
    innermost: BaseException | None = error
    library = str(error)
    while innermost is not None:
        library = innermost.name or library if isinstance(innermost, ImportError) else library
        innermost = innermost.__context__
    return ValueError(
        f"This server {what}, because {library} is missing. Its image needs vllm[audio]. Send requests without sounds"
    )


def _decoded_sound(file: File, samples: int, bounds: Bounds) -> Any:
    most = min(bounds.max_audio_samples, samples + samples // 4 + _PADDING_SAMPLES)
    _decoding.samples = most
    try:
        return file.io.load_bytes(file.data)
    except ImportError as error:
        raise _missing_library("can't read sounds", error) from None
    except ValueError as error:
        if "VLLM_MAX_AUDIO_DECODE_BYTES" in str(error):
            if most < bounds.max_audio_samples:
                raise ValueError("The sound is longer than its header states; send another file") from None
            raise too_many_samples(bounds) from None
        raise
    finally:
        _decoding.samples = None


def _image_size(data: bytes, bounds: Bounds) -> tuple[int, int]:
    from vllm.multimodal.image import open_image

    try:
        with open_image(BytesIO(data)) as image:
            if image.format in _WITH_IMAGES_INSIDE:
                return bounds.max_image_pixels, 1
            width, height = image.size
            return int(width), int(height)
    except Image.DecompressionBombError:
        raise too_large_image(bounds) from None
    except OSError as error:
        raise ValueError(f"Failed to load image: {error}") from error


def _video_size(file: File, bounds: Bounds) -> Size:
    if file.are_frames:
        images = file.data.decode().split(",")
        if file.io.num_frames > 0:
            images = images[: file.io.num_frames]
        sizes = [_image_size(pybase64.b64decode(each, validate=True), bounds) for each in images]
        # One size suffices, because vLLM only accepts frames of equal size.
        width, height = max(sizes, key=lambda size: size[0] * size[1])
        return Size(width, height, frames=len(sizes))
    width, height = _frame_size(file.data)
    return Size(width, height, frames=_frames(file))


def _frame_size(data: bytes) -> tuple[int, int]:
    import cv2
    from vllm.multimodal.video_decoders.opencv import OpenCVVideoBackendMixin

    # Don't release the capture explicitly, because OpenCV 5 then crashes if the capture reads from memory. As in vLLM,
    # garbage collection releases it.
    capture = OpenCVVideoBackendMixin.open_video_capture(data)
    return int(capture.get(cv2.CAP_PROP_FRAME_WIDTH)), int(capture.get(cv2.CAP_PROP_FRAME_HEIGHT))


def _frames(file: File) -> int:
    """Returns the number of frames that vLLM's loader would decode, without decoding frames."""
    loader = file.io.video_loader
    # Copy the decoder, because other threads may use the original decoder and loader at the same time.
    io = copy(file.io)
    io.video_loader = type("MeasuringLoader", (loader if isinstance(loader, type) else type(loader),), {
        "compute_frames_index_to_sample": classmethod(_stop_at_frames),
    })  # fmt: skip
    try:
        io.load_bytes(file.data)
    except _Measured as measured:
        return measured.frames
    raise ValueError("The frames of a video can't be counted with this video loader; use one of vLLM's loaders")


def _stop_at_frames(cls: Any, *args: Any, **kwargs: Any) -> Any:
    raise _Measured(len(set(super(cls, cls).compute_frames_index_to_sample(*args, **kwargs))))


def _samples(data: bytes) -> int:
    """Returns the number of samples in all channels of a sound according to its header. 0 if the header is unreadable.

    Resampling can increase the number of samples. The result is still bounded, because vLLM's decoders limit the
    duration of a sound.
    """
    found = _samples_by_soundfile(data)
    return _samples_by_av(data) if found is None else found


def _counted(seconds: float, rate: int, channels: int) -> int:
    """Returns the number of samples of a sound, before or after resampling for the model, whichever is larger."""
    return round(seconds * max(rate * channels, _MODEL_RATE))


def _samples_by_soundfile(data: bytes) -> int | None:
    try:
        import soundfile

        with soundfile.SoundFile(BytesIO(data)) as sound:
            return _counted(sound.frames / max(1, sound.samplerate), sound.samplerate, sound.channels)
    except (ImportError, RuntimeError):  # soundfile is not installed or can't read the format
        return None


def _samples_by_av(data: bytes) -> int:
    try:
        import av

        with av.open(BytesIO(data)) as container:
            stream = container.streams.audio[0]
            seconds = float(stream.duration * stream.time_base) if stream.duration else (container.duration or 0) / 1e6
            return _counted(seconds, stream.rate, stream.channels)
    except (ImportError, ValueError, OSError, IndexError, AttributeError):  # vLLM reports the problem on decoding
        return 0
