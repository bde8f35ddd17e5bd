"""Makes the files for `bench.frontend.media_memory`, which are small but become large when they are decoded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple


class Kind(NamedTuple):
    """A kind of file.

    Args:
        modality: the modality, as vLLM names it.
        make: writes a file with the given contents.
        smallest: the kind and the contents of a small file.
    """

    modality: str
    make: Callable[..., None]
    smallest: tuple[Any, ...]


def _image(path: Path, kind: str, mode: str, side: int, frames: int = 1) -> None:
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None
    made = [Image.new(mode, (side, side), color=number * 8 % 255) for number in range(frames)]
    more = {"save_all": True, "append_images": made[1:]} if frames > 1 else {}
    made[0].save(path, kind, **more)


def _video(path: Path, kind: str, width: int, height: int, frames: int) -> None:
    import cv2
    import numpy as np

    avi = path.with_suffix(".avi")
    writer = cv2.VideoWriter(str(avi), cv2.VideoWriter.fourcc(*kind), 10, (width, height))
    for number in range(frames):
        writer.write(np.full((height, width, 3), number, np.uint8))
    writer.release()
    avi.replace(path)


def _sound(path: Path, kind: str, rate: int, seconds: float, channels: int) -> None:
    import numpy as np
    import soundfile

    soundfile.write(path, np.zeros((max(1, int(rate * seconds)), channels), np.int16), rate, format=kind)


FILES: Final = {
    **{
        kind: Kind("image", _image, (kind, mode, 8))
        for kind, mode in (("PNG", "L"), ("JPEG", "RGB"), ("GIF", "L"), ("WEBP", "RGBA"))
    },
    "MJPG": Kind("video", _video, ("MJPG", 32, 32, 4)),
    "FLAC": Kind("audio", _sound, ("FLAC", 16000, 1, 1)),
}


def make(file: tuple[Any, ...], path: str) -> None:
    """Write a file.

    Args:
        file: the name of the file's kind in `FILES`, and the contents.
        path: the path of the file.
    """
    FILES[file[0]].make(Path(path), *file)
