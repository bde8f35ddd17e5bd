"""Bounds the API server's memory for decoded images, sounds and videos.

An image of a few kilobytes can become gigabytes of pixels. So all media of a request are measured by their headers
before any of them is decoded, and the media that are decoded and processed at a time are bounded, for one tenant and
for all tenants together. The files of media have a separate bound, before they are decoded.
"""

import asyncio
from typing import Final

from tenantzone_runtime.frontend.answers import Refusal
from tenantzone_runtime.frontend.limiter import Limiter
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
"""Memory per pixel, measured with a model's processor that keeps images at their size: for the image, the model's input
(three channels of 4 bytes, twice in models that also read videos), and the processor's working memory."""
BYTES_OF_SAMPLE: Final = 32
"""Memory per sample of a sound, measured: for the decoded sound, mixed down and resampled, and the processor's
spectrum."""
_PARTS_FOR_FILES: Final = 8
"""Fetched files may take the memory for decoded media divided by this, in addition to it."""
_FRAMES_OF_IMAGE: Final = 4
"""This many small video frames count as one small image: processors enlarge frames less than images."""
_THREADS: Final = 2
"""Threads that fetch, measure or decode files of one tenant at a time. vLLM has 8 for all tenants."""


class AllMedia:
    """The memory that the media of all tenants of one API server may take at a time.

    Args:
        bounds: of the memory.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.memory = Limiter(bounds.max_held_media_bytes)
        self.files = Limiter(file_room(bounds.max_held_media_bytes))


class _Share:
    """One tenant's share of a memory of all tenants.

    A request waits for its tenant's own requests first, and then in turn with those of other tenants.

    Args:
        size: bytes that the tenant may take at a time.
        shared: by all tenants.
    """

    def __init__(self, size: int, shared: Limiter) -> None:
        self.size = min(size, shared.room)
        self._own = Limiter(self.size)
        self._shared = shared

    async def enter(self, size: int) -> None:
        """Wait until there is memory, and take ``size`` bytes of it, at most the share."""
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
    """The memory and the threads that one tenant's media may take at a time.

    Args:
        all: the memory of all tenants.
    """

    def __init__(self, all: AllMedia) -> None:
        size = all.bounds.max_tenant_media_bytes
        self.memory = _Share(size, all.memory)
        self.files = _Share(file_room(size), all.files)
        self.threads = asyncio.Semaphore(_THREADS)


class MediaUse:
    """The use of media by one request.

    Args:
        bounds: of one request.
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
        """Bytes of the tenant's memory that the request has taken."""
        self._entered_files = 0
        """Bytes of the tenant's memory for files that the request has taken."""
        self._entering = asyncio.Lock()
        """Held while the request waits for memory: several conversations of one body wait for it once."""

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

    def add_image(self, width: int, height: int) -> None:
        """Count an image.

        A small one counts as a larger one: a model's processor may enlarge it.

        Raises:
            Refusal: the image is too large, or all images of the request are.
        """
        self._add_pixels(width * height, 1, least_pixels(self.bounds))

    def add_video(self, width: int, height: int, frames: int) -> None:
        """Count the frames of a video, small ones as larger ones.

        Raises:
            Refusal: the frames are too large, or all images and frames of the request are.
        """
        self._add_pixels(width * height, frames, least_pixels(self.bounds) // _FRAMES_OF_IMAGE)

    def _add_pixels(self, pixels: int, count: int, least: int) -> None:
        if pixels > self.bounds.max_image_pixels:
            raise too_large_image(self.bounds)
        self._pixels += max(pixels, least) * count
        if self._pixels > self.bounds.max_request_pixels:
            raise _too_large(
                "images and frames of videos", self.bounds.max_request_pixels, "pixels together", MAX_REQUEST_PIXELS
            )

    def add_samples(self, samples: int) -> None:
        """Count the samples of a sound, of all its channels.

        A short one counts as a longer one: a model's processor may fill it up.

        Raises:
            Refusal: the request has too many.
        """
        self._samples += max(samples, self.bounds.max_audio_samples // max(1, self.bounds.max_media_items))
        if self._samples > self.bounds.max_audio_samples:
            raise too_many_samples(self.bounds)

    async def enter_files(self) -> None:
        """Wait until there is memory for the largest files that a request may have. Further calls have no effect."""
        async with self._entering:
            if self._entered_files:
                return
            size = min(self.bounds.max_media_file_bytes, self._tenant.files.size)
            await self._tenant.files.enter(size)
            self._entered_files = size

    def are_fetched(self) -> None:
        """Give back the memory that the files do not need, unless another conversation may bring more of them."""
        unused = self._entered_files - self._file_bytes
        if unused > 0 and not self.has_several_conversations:
            self._entered_files -= unused
            self._tenant.files.leave(unused)

    async def enter(self) -> None:
        """Wait until there is memory for the request's decoded media. Further calls have no effect.

        Conversations of one body that wait for each other's memory would wait forever. So the first of several
        conversations takes all the memory that a tenant may have.

        Raises:
            Refusal: the request needs more than a tenant may have.
        """
        room = self._tenant.memory.size
        size = self._pixels * BYTES_OF_PIXEL + self._samples * BYTES_OF_SAMPLE
        if size > room:
            is_tenants = room == self.bounds.max_tenant_media_bytes
            raise _too_large(
                "images, sounds and videos",
                room,
                "bytes of memory together",
                MAX_TENANT_MEDIA_BYTES if is_tenants else MAX_HELD_MEDIA_BYTES,
            )
        async with self._entering:
            if self._entered:
                return
            size = room if self.has_several_conversations else size
            await self._tenant.memory.enter(size)
            self._entered = size

    def leave(self) -> None:
        """Release all memory. May be called again."""
        size, self._entered = self._entered, 0
        if size:
            self._tenant.memory.leave(size)
        size, self._entered_files = self._entered_files, 0
        if size:
            self._tenant.files.leave(size)


def file_room(room: int) -> int:
    """Returns the bytes that fetched files may take in addition to ``room`` bytes of decoded media."""
    return max(1, room // _PARTS_FOR_FILES)


def least_pixels(bounds: Bounds) -> int:
    """The pixels that each image counts as, at least."""
    return bounds.max_request_pixels // max(1, bounds.max_media_items)


def slowly_fetched(seconds: float) -> Refusal:
    """Returns the refusal of a request whose media could not be fetched within ``seconds``."""
    return Refusal(
        422,
        "large_media",
        f"The images, sounds and videos of the request could not be fetched within {seconds} seconds; send fewer, or"
        " send them in the request",
    )


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
