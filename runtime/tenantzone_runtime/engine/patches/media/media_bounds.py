"""Makes vLLM's API server measure all media of a request by their headers before it decodes any of the media.

Stock vLLM decodes each image, sound and video as soon as it has fetched the file. With this module, vLLM first fetches
all files of a request, measures them, and decodes them when the request's tenant has memory left for all of them.
Decoding is also bounded, because a header may be wrong, for example about the number of samples of a sound.

Upstream change that would make this module unnecessary: a plugin in vLLM's media connector between fetching and
decoding.
"""

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final

from PIL import Image
from vllm.multimodal.media import connector as stock_connector

from tenantzone_runtime.engine.patches.media.media_measures import File, Size, bound_sounds, decode, measure
from tenantzone_runtime.engine.versions import chat_utils
from tenantzone_runtime.frontend.body.media import MediaUse, slowly_fetched
from tenantzone_runtime.frontend.request_context import current_context
from tenantzone_runtime.frontend.responses.answers import Refusal
from tenantzone_runtime.frontend.responses.engine_refusal import refuse_with
from tenantzone_runtime.settings import Bounds

_FETCH_SECONDS: Final = 120
"""Timeout in seconds for fetching all files of a request. It is needed because vLLM only limits the time of each file,
and other tenants may wait for the memory of the files."""
_fetching: ContextVar[MediaUse | None] = ContextVar("tenantzone_fetching", default=None)
"""The media use of the request whose files are being fetched. None at all other times, even while files are decoded."""


def bound_media(bounds: Bounds) -> None:
    """Make vLLM's API server bound the media of requests that come through the frontend.

    Args:
        bounds: the bounds of one request.
    """
    tracker = chat_utils().AsyncMultiModalItemTracker
    # The images in an icon file have headers that are only read on decoding. Pillow refuses images of more than twice
    # this number of pixels.
    Image.MAX_IMAGE_PIXELS = bounds.max_image_pixels // 2
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    if hasattr(tracker.resolve_items, "__wrapped__"):
        return
    tracker.resolve_items = _bounded(tracker.resolve_items)
    load = stock_connector.MediaConnector.load_from_url_async
    stock_connector.MediaConnector.load_from_url_async = _fetching_files(load)
    bound_sounds()


class _Fetching:
    """Replaces vLLM's decoder of a file while the file is fetched. It returns the file without decoding it.

    Args:
        io: vLLM's decoder, which decodes the file later.
        limit: the maximum size of a downloaded file in bytes.
    """

    def __init__(self, io: Any, limit: int) -> None:
        self._io = io
        self._limit = limit

    def get_max_bytes(self) -> int:
        limit = self._io.get_max_bytes() if hasattr(self._io, "get_max_bytes") else None
        return self._limit if limit is None else min(self._limit, int(limit))

    def load_bytes(self, data: bytes) -> File:
        return File(self._io, data)

    def load_base64(self, media_type: str, data: str) -> File:
        return File.of_base64(self._io, media_type, data)

    def load_file(self, filepath: Path) -> File:
        if filepath.stat().st_size > self.get_max_bytes():
            raise ValueError(f"The file is larger than {self.get_max_bytes()} bytes; send a smaller one")
        return File(self._io, filepath.read_bytes())


def _fetching_files(load: Any) -> Any:
    @wraps(load)
    async def fetch_or_load(connector: Any, url: str, media_io: Any, **kwargs: Any) -> Any:
        use = _fetching.get()
        if use is None:
            return await load(connector, url, media_io, **kwargs)
        async with use.threads:
            file = await load(connector, url, _Fetching(media_io, use.file_bytes_left), **kwargs)
            use.add_file(len(file.data))
            return file

    return fetch_or_load


def _bounded(resolve: Any) -> Any:
    """Returns a wrapper of vLLM's method that collects a conversation's media. The wrapper loads the media first."""

    @wraps(resolve)
    async def resolve_bounded(tracker: Any) -> Any:
        context = current_context()
        if context is not None and context.media is not None and tracker._items_by_modality:
            try:
                await _load(tracker, context.media)
            except Refusal as refusal:
                await refuse_with(refusal)
                # Reached only on routes on which the frontend can't refuse any more. There, vLLM answers with 400.
                raise ValueError(str(refusal)) from None
        return await resolve(tracker)

    return resolve_bounded


async def _load(tracker: Any, use: MediaUse) -> None:
    """Fetch, measure and decode the media in vLLM's tracker of a conversation, and put the results into the tracker."""
    groups = tracker._items_by_modality
    items = [item for group in groups.values() for item in group]
    use.add_items(len(items))
    await use.enter_files()
    fetched = await _fetch(items, use)
    use.are_fetched()
    files = [item[0] for item in fetched if isinstance(item[0], File)]
    sizes = await _all(_on_thread(use, measure, file, use.bounds) for file in files)
    _check(sizes, use, tracker)
    await use.enter()
    decoded = await _all(
        _on_thread(use, decode, file, size, use.bounds) for file, size in zip(files, sizes, strict=True)
    )
    ready = iter(decoded)
    # `results` has the order of `items`.
    results = iter([(next(ready), *item[1:]) if isinstance(item[0], File) else item for item in fetched])
    for modality, group in list(groups.items()):
        groups[modality] = [_again(item, next(results)) for item in group]


async def _fetch(items: list[Any], use: MediaUse) -> list[Any]:
    """Fetch the files of a tracker's items.

    Raises:
        Refusal: fetching takes more than ``_FETCH_SECONDS``.
    """
    token = _fetching.set(use)
    deadline = asyncio.timeout(_FETCH_SECONDS)
    try:
        async with deadline:
            return await _all(item() if callable(item) else item for item in items)
    except TimeoutError:
        if not deadline.expired():
            raise
        raise slowly_fetched(_FETCH_SECONDS) from None
    finally:
        _fetching.reset(token)


def _check(sizes: list[Size], use: MediaUse, tracker: Any) -> None:
    """Check the total size of the files before any of them is decoded.

    Raises:
        Refusal: the total exceeds a bound of requests, or the images have more tokens than the model's maximum length.
    """
    for size in sizes:
        if size.is_image:
            use.add_image(size.width, size.height)
        elif size.frames:
            use.add_video(size.width, size.height, size.frames)
        elif size.samples:
            use.add_samples(size.samples)
    longest = tracker._model_config.max_model_len
    tokens = sum(_tokens(tracker, size) for size in sizes if size.is_image)
    if tokens > longest:
        raise Refusal(
            400,
            "large_media",
            f"The images of the request take {tokens} tokens, and the model reads at most {longest}; send fewer images",
        )


def _tokens(tracker: Any, size: Size) -> int:
    """Returns the number of tokens of an image, or 0 if the image's size alone does not determine the number."""
    count = getattr(getattr(tracker.mm_processor, "info", None), "get_num_image_tokens", None)
    if count is None:
        return 0
    try:
        return int(count(image_width=size.width, image_height=size.height))
    except TypeError:
        return 0


async def _all(awaitables: Any) -> list[Any]:
    """Wait for all awaitables, because threads can't be stopped. Returns all results, or raises the first error."""
    results = await asyncio.gather(*awaitables, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


async def _on_thread(use: MediaUse, work: Callable[..., Any], *args: Any) -> Any:
    async with use.threads:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(stock_connector.global_thread_pool, partial(work, *args))


def _again(item: Any, result: Any) -> Any:
    """Returns a replacement for a tracker's item, which produces the decoded result. It is callable if the item is."""
    return partial(_done, result) if callable(item) else _done(result)


def _done(result: Any) -> Awaitable[Any]:
    async def get() -> Any:
        return result

    return get()
