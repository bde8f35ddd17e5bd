"""Bounds the memory of the API server that decoded images, sounds and videos of requests take.

An image of a few kilobytes can become gigabytes of pixels. So all media of a request are measured by their headers
before any of them is decoded, and the media of one tenant that are decoded and processed at a time are bounded.
"""

import asyncio
from typing import Final

from tenantzone_runtime.door.answers import Refusal
from tenantzone_runtime.door.gate import Gate
from tenantzone_runtime.settings import (
    MAX_AUDIO_SAMPLES,
    MAX_IMAGE_PIXELS,
    MAX_MEDIA_FILE_BYTES,
    MAX_MEDIA_ITEMS,
    MAX_REQUEST_PIXELS,
    Bounds,
)

BYTES_OF_PIXEL: Final = 16
"""Memory for a pixel: of the decoded image and of the copies that a conversion needs, and later of the image and of
the model's input (three channels of 4 bytes)."""
BYTES_OF_SAMPLE: Final = 16
"""Memory for a sample of a sound: as decoded, joined, converted to 4 bytes, and mixed down."""
_THREADS: Final = 2
"""Threads that fetch, measure or decode files of one tenant at a time. vLLM has 8 for all tenants."""


class TenantMedia:
    """The memory and the threads that one tenant's media may take at a time.

    Args:
        room: bytes of memory.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.memory = Gate(room)
        self.threads = asyncio.Semaphore(_THREADS)


class MediaUse:
    """What the media of one request come to.

    Args:
        bounds: of one request.
        tenant: what the request's tenant may take.
    """

    def __init__(self, bounds: Bounds, tenant: TenantMedia) -> None:
        self.bounds = bounds
        self.has_several_conversations = False
        self._tenant = tenant
        self._items = 0
        self._pixels = 0
        self._samples = 0
        self._file_bytes = 0
        self._entered = 0

    @property
    def threads(self) -> asyncio.Semaphore:
        """Held while a file of the tenant is fetched, measured or decoded."""
        return self._tenant.threads

    @property
    def samples_left(self) -> int:
        """Samples of sounds that the request may still have."""
        return self.bounds.max_audio_samples - self._samples

    @property
    def pixels_left(self) -> int:
        """Pixels that the request may still have."""
        return self.bounds.max_request_pixels - self._pixels

    @property
    def file_bytes_left(self) -> int:
        """Bytes of files that the request may still have."""
        return self.bounds.max_media_file_bytes - self._file_bytes

    def add_items(self, count: int) -> None:
        """Count images, sounds and videos.

        Raises:
            Refusal: the request has too many.
        """
        self._items += count
        if self._items > self.bounds.max_media_items:
            raise _too_many(f"{self._items} images, sounds and videos", self.bounds.max_media_items, MAX_MEDIA_ITEMS)

    def add_file(self, size: int) -> None:
        """Count a file, of ``size`` bytes before it is decoded.

        Raises:
            Refusal: the request's files are too large.
        """
        self._file_bytes += size
        if self._file_bytes > self.bounds.max_media_file_bytes:
            raise _too_large("files of images, sounds and videos", self.bounds.max_media_file_bytes, "bytes",
                             MAX_MEDIA_FILE_BYTES)  # fmt: skip

    def add_images(self, width: int, height: int, count: int = 1) -> None:
        """Count images, or frames of a video, of one size.

        A small one counts as a larger one: a model's processor may enlarge it.

        Raises:
            Refusal: each of them is too large, or all of the request's are.
        """
        pixels = width * height
        if pixels > self.bounds.max_image_pixels:
            raise too_large_image(self.bounds)
        self._pixels += max(pixels, least_pixels(self.bounds)) if count == 1 else pixels * count
        if self._pixels > self.bounds.max_request_pixels:
            raise _too_large(
                "images and frames of videos", self.bounds.max_request_pixels, "pixels together", MAX_REQUEST_PIXELS
            )

    def add_samples(self, samples: int) -> None:
        """Count the samples of a sound, of all its channels.

        Raises:
            Refusal: the request has too many.
        """
        self._samples += samples
        if self._samples > self.bounds.max_audio_samples:
            raise too_many_samples(self.bounds)

    async def enter(self) -> None:
        """Wait until the tenant has memory left for the request's media. Further calls have no effect.

        Conversations of one body that waited for each other's memory would wait for ever. So the first of several
        conversations takes all the memory that a tenant may have.
        """
        if self._entered:
            return
        weight = self._pixels * BYTES_OF_PIXEL + self._samples * BYTES_OF_SAMPLE + self._file_bytes
        weight = self._tenant.room if self.has_several_conversations else weight
        await self._tenant.memory.enter(weight)
        self._entered = weight

    def leave(self) -> None:
        """Give back the memory; harmless if that was done before."""
        weight, self._entered = self._entered, 0
        if weight:
            self._tenant.memory.leave(weight)


def least_pixels(bounds: Bounds) -> int:
    """The pixels that each image counts as, at least."""
    return bounds.max_request_pixels // max(1, bounds.max_media_items)


def too_large_image(bounds: Bounds) -> Refusal:
    """The refusal of a request with an image, or a frame of a video, that is larger than any may be."""
    return _too_large("an image or a frame of a video", bounds.max_image_pixels, "pixels", MAX_IMAGE_PIXELS)


def too_many_samples(bounds: Bounds) -> Refusal:
    """The refusal of a request whose sounds are too long."""
    return _too_large("sounds", bounds.max_audio_samples, "samples of all channels", MAX_AUDIO_SAMPLES)


def _too_many(found: str, limit: int, setting: str) -> Refusal:
    message = f"The request has {found}, more than {limit} ({setting}); send fewer"
    return Refusal(400, "large_media", message)


def _too_large(what: str, limit: int, unit: str, setting: str) -> Refusal:
    message = f"The request has {what} with more than {limit} {unit} ({setting}); send smaller or fewer ones"
    return Refusal(413, "large_media", message)
