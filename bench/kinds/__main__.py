"""Runs the demo's flood for each kind of model and feature that vLLM supports on CPUs, with zones and on stock vLLM.

For each kind, the bench makes a tiny model with random weights, and starts two engines with this model and equal flags
and blocks. The tenant acme, which reserves half of the blocks, sends a prompt twice. The tenant burst sends the same
prompt, then floods the engine with distinct prompts, and acme sends its prompt again. The table has the number of
cached tokens of acme's prompt, and the number of answer tokens that equal stock vLLM's. If an engine does not start,
its error is printed under the table.
"""

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import httpx

from bench.end_to_end.engines import BLOCK_TOKENS, Engine, EngineError, Engines
from bench.kinds.kinds import KINDS, Kind
from bench.kinds.results import Drafts, Result, reason_in, table
from bench.kinds.story import Story, record
from bench.progress import say
from hack.locked import with_torchvision
from tenantzone_contract.zone_config.config import ZoneConfig

_ZONES: Final = (
    ZoneConfig(name="acme", tenant="acme", generation=1, reserved="50%", priority=10),
    ZoneConfig(name="burst", tenant="burst", generation=1, limit="60%"),
)
_METRIC: Final = r"^vllm:spec_decode_num_{}_tokens_total(?:{{[^}}]*}})? (\S+)$"


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all kinds and print the table; returns 1 if the story fails for a kind that stock vLLM supports."""
    options = _options(arguments)
    results = []
    for number, name in enumerate(options.kinds, start=1):
        say(f"kind {number} of {len(options.kinds)}: {name}")
        result = _try(KINDS[name], options.keep)
        say(table([result]))
        results.append(result)
    print(table(results))
    return 0 if all(result.holds or isinstance(result.stock, str) for result in results) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.kinds", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        # Don't use `choices`, because Python 3.11 rejects the list, even an empty one, as an invalid choice.
        "kinds", nargs="*", metavar="KIND",
        help=f"which to try (default: all): {', '.join(KINDS)}",
    )  # fmt: skip
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep models and the engines' logs in there")
    options = parser.parse_args(arguments)
    if unknown := [kind for kind in options.kinds if kind not in KINDS]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(KINDS)}")
    options.kinds = options.kinds or list(KINDS)
    return options


def _try(kind: Kind, keep: Path | None) -> Result:
    with tempfile.TemporaryDirectory(prefix="kinds-") as name, Engines() as stock_alone, Engines() as zones_alone:
        folder = keep / kind.name if keep else Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        say("making the model")
        model = kind.make_in(folder)
        stock = _engine("stock", kind, model, folder, stock_alone)
        zones = _engine("zones", kind, model, folder, zones_alone)
        stock_ran, zones_ran = _starts(stock, stock_alone), _starts(zones, zones_alone)
        tokens = zones.report().block_size_tokens if zones_ran is None else BLOCK_TOKENS
        flood_tokens = kind.flood_blocks * tokens
        return Result(
            kind.name,
            kind.like,
            zones=zones_ran or _record(zones, kind, flood_tokens),
            stock=stock_ran or _record(stock, kind, flood_tokens),
            drafts=_drafts(zones) if kind.speculation and zones_ran is None else None,
        )


def _engine(side: str, kind: Kind, model: Path, folder: Path, engines: Engines) -> Engine:
    """Returns the engine of one side, on a separate core if the machine has two."""
    cores = sorted(os.sched_getaffinity(0))
    own = folder / side
    own.mkdir(exist_ok=True)
    is_stock = side == "stock"
    engine = Engine(
        f"{kind.name}, {side}",
        None if is_stock else _ZONES,
        model=model,
        folder=own,
        cores=cores[:1] if is_stock else cores[-1:],
        tenants=len(_ZONES),
        flags=("--enable-prompt-tokens-details", *kind.flags_in(folder)),
        variables={
            "TENANTZONE_OPEN_ROUTES": "/metrics",
            **({"PYTHONPATH": with_torchvision()} if kind.pictures else {}),
        },
    )
    engines.add(engine)
    return engine


def _starts(engine: Engine, alone: Engines) -> str | None:
    """Wait until an engine is ready; returns the error from its log if it does not start."""
    try:
        alone.await_ready()
    except EngineError:
        return reason_in(engine.log())
    return None


def _record(engine: Engine, kind: Kind, flood_tokens: int) -> Story | str:
    def progress(message: str) -> None:
        say(f"{engine.name}: {message}")

    try:
        return record(engine, flood_tokens, pictures=kind.pictures, say=progress)
    except (RuntimeError, httpx.HTTPError) as error:
        return f"{error}; {reason_in(engine.log())}"


def _drafts(engine: Engine) -> Drafts:
    """Returns the drafted and accepted tokens of an engine whose ``/metrics`` needs no key."""
    shown = httpx.get(f"{engine.url}/metrics", timeout=60).text

    def read(what: str) -> int:
        return sum(int(float(value)) for value in re.findall(_METRIC.format(what), shown, re.MULTILINE))

    return Drafts(drafted=read("draft"), accepted=read("accepted"))


if __name__ == "__main__":
    sys.exit(main())
