"""Limits the API server's memory for images, sounds and videos, for each tenant and for all tenants together.

An image of a few kilobytes can become gigabytes of pixels. So the sizes of all media of a request are read from the
file headers before any file is decoded. Then the request waits until there is memory for its decoded media. The memory
for files that are not decoded yet has a separate limit.
"""

import asyncio
from typing import Final

from tenantzone_runtime.frontend.body.limiter import Limiter
from tenantzone_runtime.frontend.responses.answers import Refusal
from tenantzone_runtime.settings import (
    MAX_AUDIO_SAMPLES,
    MAX_HELD_MEDIA_BYTES,
    MAX_IMAGE_PIXELS,
    MAX_MEDIA_FILE_BYTES,
    MAX_MEDIA_ITEMS,
    MAX_REQUEST_PIXELS,
    MAX_TENANT_MEDIA_BYTES,
    Bounds,
)

BYTES_OF_PIXEL: Final = 64
"""Bytes of memory per pixel, measured with a model's processor that does not resize images. They include the image, the
model's input (three channels of 4 bytes, twice in models that also read videos) and the processor's working memory."""
BYTES_OF_SAMPLE: Final = 32
"""Measured bytes of memory per sample of a sound. They include the decoded sound, its mixed-down and resampled copies,
and the processor's spectrum."""
_PARTS_FOR_FILES: Final = 8
"""The memory for fetched files is the memory for decoded media divided by this number."""
_FRAMES_OF_IMAGE: Final = 4
"""Number of small frames that count as much as one small image, because processors enlarge frames less than images."""
_THREADS: Final = 2
"""Maximum number of threads that fetch, measure or decode one tenant's files. vLLM has 8 threads for all tenants."""


class AllMedia:
    """The memory for the media of all tenants of one API server.

    Args:
        bounds: the settings with the maximum bytes of memory.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.memory = Limiter(bounds.max_held_media_bytes)
        self.files = Limiter(file_room(bounds.max_held_media_bytes))


class _Share:
    """One tenant's part of a memory that all tenants share.

    A request first waits for requests of its own tenant, and then takes turns with requests of other tenants.

    Args:
        size: maximum number of bytes that the tenant may take.
        shared: the limiter of the memory of all tenants.
    """

    def __init__(self, size: int, shared: Limiter) -> None:
        self.size = min(size, shared.room)
        self._own = Limiter(self.size)
        self._shared = shared

    async def enter(self, size: int) -> None:
        """Wait until ``size`` bytes are free, and take them. If the share is smaller than this, take all of it."""
        await self._own.enter(size)
        try:
            await self._shared.enter(size, self)
        except BaseException:
            self._own.leave(size)
            raise

    def leave(self, size: int) -> None:
        self._shared.leave(size)
        self._own.leave(size)


class TenantMedia:
    """The memory and the threads for the media of one tenant.

    Args:
        all: the memory of all tenants.
    """

    def __init__(self, all: AllMedia) -> None:
        size = all.bounds.max_tenant_media_bytes
        self.memory = _Share(size, all.memory)
        self.files = _Share(file_room(size), all.files)
        self.threads = asyncio.Semaphore(_THREADS)


class MediaUse:
    """Counts the media of one request, and takes and releases memory for them.

    Args:
        bounds: the settings with the limits of one request.
        tenant: the memory and threads of the request's tenant.
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
        """Bytes that the request has taken of the tenant's memory for decoded media."""
        self._entered_files = 0
        """Bytes that the request has taken of the tenant's memory for fetched files."""
        self._entering = asyncio.Lock()
        """Held while the request waits for memory, so that only one of the body's conversations takes memory."""

    @property
    def threads(self) -> asyncio.Semaphore:
        """A semaphore to hold while fetching, measuring or decoding a file of the tenant."""
        return self._tenant.threads

    @property
    def samples_left(self) -> int:
        """Number of sound samples that the request may still add."""
        return self.bounds.max_audio_samples - self._samples

    @property
    def pixels_left(self) -> int:
        """Number of pixels that the request may still add."""
        return self.bounds.max_request_pixels - self._pixels

    @property
    def file_bytes_left(self) -> int:
        """Number of bytes of files that the request may still add."""
        return self.bounds.max_media_file_bytes - self._file_bytes

    def add_items(self, count: int) -> None:
        """Count ``count`` more images, sounds and videos.

        Raises:
            Refusal: the request now has too many images, sounds and videos.
        """
        self._items += count
        if self._items > self.bounds.max_media_items:
            raise _too_many(f"{self._items} images, sounds and videos", self.bounds.max_media_items, MAX_MEDIA_ITEMS)

    def add_file(self, size: int) -> None:
        """Count a file of ``size`` bytes, as fetched.

        Raises:
            Refusal: the request's files are too large in total.
        """
        self._file_bytes += size
        if self._file_bytes > self.bounds.max_media_file_bytes:
            raise _too_large("files of images, sounds and videos", self.bounds.max_media_file_bytes, "bytes",
                             MAX_MEDIA_FILE_BYTES)  # fmt: skip

    def add_image(self, width: int, height: int) -> None:
        """Count an image of ``width`` times ``height`` pixels.

        A small image counts as a larger one, because a model's processor may enlarge it.

        Raises:
            Refusal: the image is too large, or the request's images and frames have too many pixels in total.
        """
        self._add_pixels(width * height, 1, least_pixels(self.bounds))

    def add_video(self, width: int, height: int, frames: int) -> None:
        """Count the frames of a video. Small frames count as larger ones.

        Raises:
            Refusal: the frames are too large, or the request's images and frames have too many pixels in total.
        """
        self._add_pixels(width * height, frames, least_pixels(self.bounds) // _FRAMES_OF_IMAGE)

    def _add_pixels(self, pixels: int, count: int, least: int) -> None:
        if pixels > self.bounds.max_image_pixels:
            raise too_large_image(self.bounds)
        self._pixels += max(pixels, least) * count
        if self._pixels > self.bounds.max_request_pixels:
            raise _too_large(
                "images and frames of videos", self.bounds.max_request_pixels, "pixels in total", MAX_REQUEST_PIXELS
            )

    def add_samples(self, samples: int) -> None:
        """Count a sound with ``samples`` samples in all channels together.

        A short sound counts as a longer one, because a model's processor may pad it.

        Raises:
            Refusal: the request has too many samples.
        """
        self._samples += max(samples, self.bounds.max_audio_samples // max(1, self.bounds.max_media_items))
        if self._samples > self.bounds.max_audio_samples:
            raise too_many_samples(self.bounds)

    async def enter_files(self) -> None:
        """Wait until there is memory for the maximum total size of a request's files. Further calls have no effect."""
        async with self._entering:
            if self._entered_files:
                return
            size = min(self.bounds.max_media_file_bytes, self._tenant.files.size)
            await self._tenant.files.enter(size)
            self._entered_files = size

    def are_fetched(self) -> None:
        """Release the memory that the fetched files do not use. Keep it if the body has several conversations."""
        unused = self._entered_files - self._file_bytes
        if unused > 0 and not self.has_several_conversations:
            self._entered_files -= unused
            self._tenant.files.leave(unused)

    async def enter(self) -> None:
        """Wait until there is memory for the request's decoded media. Further calls have no effect.

        If a body has several conversations, the first takes all of the tenant's memory on behalf of the others. If each
        conversation took its own memory, they could deadlock.

        Raises:
            Refusal: the request needs more memory than a tenant may take.
        """
        room = self._tenant.memory.size
        size = self._pixels * BYTES_OF_PIXEL + self._samples * BYTES_OF_SAMPLE
        if size > room:
            is_tenants = room == self.bounds.max_tenant_media_bytes
            raise _too_large(
                "images, sounds and videos",
                room,
                "bytes of memory in total",
                MAX_TENANT_MEDIA_BYTES if is_tenants else MAX_HELD_MEDIA_BYTES,
            )
        async with self._entering:
            if self._entered:
                return
            size = room if self.has_several_conversations else size
            await self._tenant.memory.enter(size)
            self._entered = size

    def leave(self) -> None:
        """Release all memory that the request has taken. Further calls have no effect."""
        size, self._entered = self._entered, 0
        if size:
            self._tenant.memory.leave(size)
        size, self._entered_files = self._entered_files, 0
        if size:
            self._tenant.files.leave(size)


def file_room(room: int) -> int:
    """Returns the maximum number of bytes of fetched files if decoded media may have ``room`` bytes."""
    return max(1, room // _PARTS_FOR_FILES)


def least_pixels(bounds: Bounds) -> int:
    """Returns the minimum number of pixels with which each image is counted."""
    return bounds.max_request_pixels // max(1, bounds.max_media_items)


def slowly_fetched(seconds: float) -> Refusal:
    """Returns the refusal of a request whose media could not be fetched within ``seconds``."""
    return Refusal(
        422,
        "large_media",
        f"The images, sounds and videos of the request could not be fetched within {seconds} seconds; send fewer, or"
        " include their data in the request",
    )


def too_large_image(bounds: Bounds) -> Refusal:
    """Returns the refusal of a request with an image, or a frame of a video, that is too large."""
    return _too_large("an image or a frame of a video", bounds.max_image_pixels, "pixels", MAX_IMAGE_PIXELS)


def too_many_samples(bounds: Bounds) -> Refusal:
    """Returns the refusal of a request whose sounds are too long."""
    return _too_large("sounds", bounds.max_audio_samples, "samples of all channels", MAX_AUDIO_SAMPLES)


def _too_many(found: str, limit: int, setting: str) -> Refusal:
    message = f"The request has {found}, more than the limit of {limit} ({setting}); send fewer"
    return Refusal(400, "large_media", message)


def _too_large(what: str, limit: int, unit: str, setting: str) -> Refusal:
    message = f"The request has {what} with more than {limit} {unit} ({setting}); send smaller or fewer ones"
    return Refusal(413, "large_media", message)
