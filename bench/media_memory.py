"""How much memory hostile pictures take of the process that decodes them, with our bounds and as in stock vLLM.

Each case runs in a process of its own, through vLLM's own connector and trackers, without an engine:

    .venv/bin/python -m bench.media_memory

It prints the growth of the peak resident memory and the bound of one tenant.
"""

import argparse
import asyncio
import base64
import resource
import subprocess
import sys
from types import SimpleNamespace

MIB = 2**20
_SIDE = 5790
"""Of a picture just below the bound of pixels."""
CASES = {
    "PNG, 2 just below the bound": ("PNG", "L", _SIDE, 2),
    "PNG with transparency, 2": ("PNG", "LA", _SIDE, 2),
    "GIF, 2": ("GIF", "L", _SIDE, 2),
    "WebP, 2": ("WEBP", "RGBA", _SIDE, 2),
    "JPEG, 2": ("JPEG", "RGB", _SIDE, 2),
    "small PNG, 128": ("PNG", "L", 700, 128),
    "PNG of 170 Mpx, 12": ("PNG", "1", 13000, 12),
}


def main() -> None:
    """Run all cases in processes, or one of them in this one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", help="run this one, in this process")
    parser.add_argument("--stock", action="store_true", help="without bounds")
    arguments = parser.parse_args()
    if arguments.case:
        _run(*CASES[arguments.case], stock=arguments.stock)
        return
    print(f"{'case':30} {'':6} {'file MiB':>9} {'grew MiB':>9} {'bound':>6} {'ratio':>6}  answer", flush=True)
    for case in CASES:
        for stock in (False, True):
            command = [sys.executable, "-m", "bench.media_memory", "--case", case, *["--stock"] * stock]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            line = run.stdout.strip().splitlines()[-1:] or [f"ended with {run.returncode}"]
            print(f"{case:30} {'stock' if stock else 'ours':6} {line[0]}", flush=True)


def _run(kind: str, mode: str, side: int, count: int, *, stock: bool) -> None:
    from PIL import Image
    from vllm.multimodal.media.connector import MediaConnector
    from vllm.renderers.chat_utils import AsyncMultiModalItemTracker

    from tenantzone_runtime.door.answers import Refusal
    from tenantzone_runtime.door.media import MediaUse, TenantMedia
    from tenantzone_runtime.engine import media_bounds
    from tenantzone_runtime.settings import Bounds

    bounds = Bounds()
    most = Image.MAX_IMAGE_PIXELS
    if not stock:
        media_bounds.bound_media(bounds)
    data = _file(kind, mode, side)
    source = "data:image/any;base64," + base64.b64encode(data).decode()
    connector = MediaConnector()

    async def item() -> tuple[object, None]:
        return await connector.fetch_image_async(source), None

    async def play() -> str:
        if stock:
            kept = await asyncio.gather(*(item() for _ in range(count)), return_exceptions=True)
            return str(next((each for each in kept if isinstance(each, BaseException)), "decoded"))
        tracker = object.__new__(AsyncMultiModalItemTracker)
        tracker._items_by_modality = {"image": [item] * count}
        tracker._model_config = SimpleNamespace(max_model_len=2**20)
        tracker.__dict__["mm_processor"] = None
        try:
            await media_bounds._load(tracker, MediaUse(bounds, TenantMedia(bounds.max_tenant_media_bytes)))
        except Refusal as refusal:
            return f"{refusal.status} {refusal}"
        return "decoded"

    asyncio.run(connector.fetch_image_async(f"data:image/png;base64,{base64.b64encode(_file(kind, mode, 8)).decode()}"))
    Image.MAX_IMAGE_PIXELS = most if stock else Image.MAX_IMAGE_PIXELS
    before = _peak()
    answer = asyncio.run(play())
    grew = _peak() - before
    bound = bounds.max_tenant_media_bytes
    print(f"{len(data) * count / MIB:9.2f} {grew / MIB:9.0f} {bound / MIB:6.0f} {grew / bound:6.2f}  {answer[:70]}")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _file(kind: str, mode: str, side: int) -> bytes:
    """Made in another process, so that its memory is not in this one's peak."""
    code = (
        "import sys; from PIL import Image; Image.MAX_IMAGE_PIXELS = None; "
        f"Image.new({mode!r}, ({side}, {side})).save(sys.stdout.buffer, {kind!r})"
    )
    return subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout


if __name__ == "__main__":
    main()
