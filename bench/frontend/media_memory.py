"""Measures the memory that hostile images, sounds and videos need in the process that decodes and processes them.

Each case runs in a separate process without an engine, through vLLM's connector and trackers and a transformers
processor that is created here:

    .venv/bin/python -m bench.frontend.media_memory

It prints the peak growth of the resident memory, and the bound. Each request waits for its turn as in the frontend, is
decoded, is processed on one thread as in vLLM, and is kept until all requests that were admitted with it are processed.
Sounds need soundfile or PyAV, and are skipped without them.
"""

import argparse
import asyncio
import base64
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Final

from bench.frontend.media_files import FILES
from bench.frontend.media_processors import PROCESSORS
from hack.locked import with_torchvision

MIB: Final = 2**20
_SIDE: Final = 5790
"""Side length of a square image just below the maximum number of pixels."""


@dataclass(frozen=True)
class Case:
    """Requests that are sent at once.

    Args:
        file: the name of the file's kind in `FILES`, and the contents.
        items: the number of files in each request.
        processor: the name of the processor in `PROCESSORS`.
        requests: the number of requests of each tenant.
        tenants: the number of tenants, each with its own bounds.
    """

    file: tuple[Any, ...]
    items: int
    processor: str
    requests: int = 1
    tenants: int = 1


CASES: Final = {
    "PNG, 2 just below the bound": Case(("PNG", "L", _SIDE), 2, "none"),
    "the same, Qwen2-VL": Case(("PNG", "L", _SIDE), 2, "pixels"),
    "PNG with transparency, 2": Case(("PNG", "LA", _SIDE), 2, "pixels"),
    "JPEG, 2": Case(("JPEG", "RGB", _SIDE), 2, "pixels"),
    "GIF of 20 frames, 2": Case(("GIF", "L", _SIDE, 20), 2, "pixels"),
    "WebP of 4 frames, 2": Case(("WEBP", "RGBA", _SIDE, 4), 2, "pixels"),
    "small PNG, 128": Case(("PNG", "L", 700), 128, "pixels"),
    "tiny PNG, 128": Case(("PNG", "L", 28), 128, "pixels"),
    "JPEG, 2, CLIP": Case(("JPEG", "RGB", _SIDE), 2, "clip"),
    "JPEG, 4 requests": Case(("JPEG", "RGB", _SIDE), 1, "pixels", requests=4),
    "small PNG, 8 requests of 32": Case(("PNG", "L", 700), 32, "pixels", requests=8),
    "JPEG, 4 tenants": Case(("JPEG", "RGB", _SIDE), 1, "pixels", tenants=4),
    "video, 32 frames": Case(("MJPG", 1440, 1440, 32), 1, "frames"),
    "video, 32 small frames, 16": Case(("MJPG", 32, 32, 32), 16, "frames"),
    "video, 4 requests": Case(("MJPG", 720, 720, 32), 1, "frames", requests=4),
    "FLAC of 600 s": Case(("FLAC", 48000, 600, 2), 1, "whisper"),
    "FLAC of 1,000 Hz, 600 s, 8": Case(("FLAC", 1000, 600, 1), 8, "whisper"),
    "FLAC of 100 samples, 128": Case(("FLAC", 16000, 100 / 16000, 1), 128, "whisper"),
    "FLAC of 8 channels, 120 s": Case(("FLAC", 48000, 120, 8), 1, "whisper"),
    "FLAC, 4 requests": Case(("FLAC", 48000, 300, 2), 1, "whisper", requests=4),
    "PNG of 170 Mpx, 12": Case(("PNG", "1", 13000), 12, "none"),
}


def main() -> None:
    """Run each case in a separate process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="run the cases with this in their name")
    parser.add_argument("--stock", action="store_true", help="run them without bounds, too")
    arguments = parser.parse_args()
    sys.path += with_torchvision().split(os.pathsep)
    os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"  # it warns of each sound
    # Import slow modules once, before the processes are forked from this one.
    import_module("vllm.renderers.chat_utils")
    for make in PROCESSORS.values():
        make()
    print(f"{'case':30} {'':6} {'file MiB':>9} {'grew MiB':>9} {'bound':>6} {'ratio':>6}  answer", flush=True)
    for name, case in CASES.items():
        for stock in (False, True) if arguments.stock else (False,):
            if arguments.only in name:
                print(f"{name:30} {'stock' if stock else 'ours':6} ", end="", flush=True)
                process = get_context("fork").Process(target=_run, args=(case,), kwargs={"stock": stock})
                process.start()
                process.join()
                if process.exitcode:
                    print(f"ended with {process.exitcode}", flush=True)


def _run(case: Case, *, stock: bool) -> None:
    from tenantzone_runtime.engine.patches.media import media_bounds
    from tenantzone_runtime.frontend.body.media import AllMedia, MediaUse, TenantMedia, file_room
    from tenantzone_runtime.settings import Bounds

    bounds = Bounds()
    # Lower the overall bound to that of one tenant, so that several tenants exceed it together.
    bounds = replace(bounds, max_held_media_bytes=bounds.max_tenant_media_bytes)
    if not stock:
        media_bounds.bound_media(bounds)
    kind, *details = case.file
    modality, make, smallest = FILES[kind]
    try:
        with TemporaryDirectory() as folder:
            size, source = _made(make, (kind, *details), Path(folder))
            warm_up = _made(make, smallest, Path(folder))[1]
    except ImportError as error:
        print(f"left out: {error}", flush=True)
        return
    process = PROCESSORS[case.processor]()
    thread = ThreadPoolExecutor(1)
    all_media = AllMedia(bounds)

    async def one(use: Any, url: str, items: int) -> str:
        loaded = await _loaded(modality, url, items, use)
        if isinstance(loaded, str):
            return loaded
        kept = await asyncio.get_running_loop().run_in_executor(thread, process, loaded)
        # The engine takes the media a little later, while other admitted requests are processed.
        await asyncio.sleep(1)
        del kept, loaded
        if use is not None:
            use.leave()
        return "decoded"

    async def all_at_once() -> Sequence[str]:
        tenants = [TenantMedia(all_media) for _ in range(case.tenants)]
        uses = [None if stock else MediaUse(bounds, tenant) for tenant in tenants for _ in range(case.requests)]
        return await asyncio.gather(*(one(use, source, case.items) for use in uses))

    asyncio.run(one(None, warm_up, 1))
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    answers = set(asyncio.run(all_at_once()))
    grew = _resident("VmHWM") - before
    bound = bounds.max_held_media_bytes + file_room(bounds.max_held_media_bytes)
    print(
        f"{size * case.items / MIB:9.2f} {grew / MIB:9.0f} {bound / MIB:6.0f} {grew / bound:6.2f}  "
        f"{'; '.join(sorted(answers))[:70]}",
        flush=True,
    )


async def _loaded(modality: str, url: str, items: int, use: Any) -> Any:
    """Returns the decoded media of a request, or the reason for its refusal."""
    from vllm.multimodal.media.connector import MediaConnector
    from vllm.renderers.chat_utils import AsyncMultiModalItemTracker

    from tenantzone_runtime.engine.patches.media import media_bounds
    from tenantzone_runtime.frontend.responses.answers import Refusal

    connector = MediaConnector()
    fetch = getattr(connector, f"fetch_{modality}_async")

    async def item() -> tuple[Any, None]:
        return await fetch(url), None

    try:
        if use is None:
            return [media for media, _ in await asyncio.gather(*(item() for _ in range(items)))]
        tracker = object.__new__(AsyncMultiModalItemTracker)
        tracker._items_by_modality = {modality: [item] * items}
        tracker._model_config = SimpleNamespace(max_model_len=2**20)
        tracker.__dict__["mm_processor"] = None
        await media_bounds._load(tracker, use)
        ready: Sequence[Callable[[], Awaitable[Any]]] = tracker._items_by_modality[modality]
        return [(await each())[0] for each in ready]
    except (Refusal, ValueError) as error:
        return f"{getattr(error, 'status', 400)} {error}"


def _made(make: Any, file: tuple[Any, ...], folder: Path) -> tuple[int, str]:
    """Make a file in another process, whose memory is not counted; returns the file's size and a data URL of it."""
    path = folder / "file"
    code = f"from bench.frontend.media_files import make; make({file!r}, {str(path)!r})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if run.returncode:
        raise ImportError(run.stderr.strip().splitlines()[-1])
    data = path.read_bytes()
    return len(data), "data:image/any;base64," + base64.b64encode(data).decode()


def _resident(field: str) -> int:
    """Returns the resident memory in bytes: the current (VmRSS), or the peak since it was reset (VmHWM)."""
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


if __name__ == "__main__":
    main()
