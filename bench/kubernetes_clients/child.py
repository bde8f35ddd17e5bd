"""``python -m bench.kubernetes_clients.child CLIENT``: one client, which gets its orders line by line.

It reads from standard input ``get`` (read the object once) or ``load N`` (N times, several at a time), and answers each
with a line of JSON: ``{}`` or figures where it worked, else ``{"error": ...}``.
"""

import argparse
import asyncio
import json
import sys
import time
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.kubernetes_clients.libraries import AT_ONCE, CLIENTS, Read, hide_what_kopf_finds


class Session:
    """A client that connects on its first use: an error in its credentials is an answer, too."""

    def __init__(self, name: str) -> None:
        self._client = CLIENTS[name].connect()
        self._read: Read | None = None

    async def answer(self, order: str, *numbers: str) -> dict[str, Any]:
        """Do one thing, and say what came of it."""
        try:
            if self._read is None:
                self._read = await self._client.__aenter__()
            if order == "load":
                return await _load(self._read, int(numbers[0]))
            await self._read()
        except BaseException as error:
            return {"error": f"{type(error).__name__}: {error}".strip()}
        return {"resident_mb": _resident_mb()}


async def _load(read: Read, count: int) -> dict[str, Any]:
    remaining = iter(range(count))

    async def one_after_the_other() -> None:
        for _ in remaining:
            await read()

    began, processor = time.monotonic(), time.process_time()
    await asyncio.gather(*(one_after_the_other() for _ in range(AT_ONCE)))
    return {
        "per_second": count / (time.monotonic() - began),
        "processor_ms": (time.process_time() - processor) / count * 1000,
    }


def _resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError("no VmRSS in the process's status")


async def _serve(name: str) -> None:
    session = Session(name)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await session.answer(*line.split())), flush=True)


def main() -> None:
    """Say which version this is and how long its import took, then serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("--with-kopf", action="store_true", help="import kopf, too, as the operator does")
    arguments = parser.parse_args()
    library = CLIENTS[arguments.client]
    hide_what_kopf_finds(arguments.client)
    try:
        installed = f"{library.distribution} {version(library.distribution)}"
    except PackageNotFoundError:
        print(json.dumps({"error": f"{library.distribution} is not installed"}), flush=True)
        return
    began = time.monotonic()
    for module in (*library.modules, *(["kopf"] if arguments.with_kopf else [])):
        import_module(module)
    print(json.dumps({"version": installed, "import_seconds": time.monotonic() - began}), flush=True)
    asyncio.run(_serve(arguments.client))


if __name__ == "__main__":
    main()
