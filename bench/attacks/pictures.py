"""Pictures: tests whether a tenant learns from times that another tenant has sent the same picture.

A victim sends a picture. The attacker sends the same picture and a new one, each after unique words, and measures the
time to first token. The unique words, and with stock vLLM also different salts, rule out the prefix cache, so only the
caches of processed and encoded pictures remain. Then the victim sends a picture with a name (``uuid``), and the
attacker requests the picture by its name alone. Stock vLLM and zones are attacked in one run, and once more with the
victim as its own attacker, which shows that these caches work. The model is a LLaVA with random weights.

    python -m bench.attacks.pictures
"""

import argparse
import random
import sys
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import httpx

from bench.attacks.engines import attacked_engines
from bench.attacks.findings import distinguish
from bench.attacks.probing import Target
from bench.end_to_end.engines import EngineError
from bench.kinds import models
from bench.kinds.story import picture
from bench.progress import say
from hack.locked import with_torchvision

_VISION_LAYERS = 8
_VISION_WIDTH = 512
"""Width of the vision encoder, large enough that encoding a picture takes a measurable time."""
_WORDS = 4000
_QUESTION_WORDS = 16
_WARM_UP = 3
_TIMEOUT_SECONDS = 60.0


@dataclass(slots=True)
class Seen:
    """The attacker's observations."""

    sent: list[float] = field(default_factory=list)
    """Seconds until the first token of an answer about a picture that the victim had sent."""
    unsent: list[float] = field(default_factory=list)
    """Seconds until the first token of an answer about a new picture."""
    served_by_name: int = 0
    """Number of the victim's pictures that were served when requested by name alone."""


def attack(target: Target, samples: int, *, attacker: int, seed: int) -> Seen:
    """Send pictures as victim and attacker.

    Args:
        target: the engine, whose first tenant is the victim.
        samples: the number of samples for sent pictures and for new ones.
        attacker: the number of the attacking tenant.
        seed: the seed of pictures and words.

    Raises:
        EngineError: the engine refuses a valid request.
    """
    rng, seen = random.Random(seed), Seen()
    with httpx.Client(base_url=target.url, timeout=_TIMEOUT_SECONDS) as client:
        ask_as = [partial(_ask, client, target, tenant, rng) for tenant in (0, attacker)]
        as_victim, as_attacker = ask_as
        for number in range(_WARM_UP + samples):
            pictures = [picture(rng), picture(rng)]
            # The victim's picture is requested first as often as second, so the order reveals nothing.
            sent = pictures[number % 2]
            _check(as_victim(_picture(sent)))
            for each in pictures:
                began = time.perf_counter()
                _check(as_attacker(_picture(each)))
                seconds = time.perf_counter() - began
                if number >= _WARM_UP:
                    (seen.sent if each is sent else seen.unsent).append(seconds)
            name = f"picture-{seed}-{number}"
            _check(as_victim(_picture(picture(rng), name)))
            if number >= _WARM_UP:
                seen.served_by_name += as_attacker(_picture(None, name)).status_code == 200
    return seen


def _picture(png: bytes | None, name: str | None = None) -> dict[str, Any]:
    """Returns a message part with a picture, an optional name for it, or its name alone."""
    url = None if png is None else {"url": f"data:image/png;base64,{b64encode(png).decode()}"}
    return {"type": "image_url", "image_url": url, **({"uuid": name} if name else {})}


def _ask(
    client: httpx.Client, target: Target, tenant: int, rng: random.Random, shown: Mapping[str, Any]
) -> httpx.Response:
    words = " ".join(f"w{rng.randrange(_WORDS)}" for _ in range(_QUESTION_WORDS))
    headers = target.headers_of(tenant)
    body = {
        **{"model": target.model, "max_tokens": 1, "temperature": 0},
        "messages": [{"role": "user", "content": [{"type": "text", "text": words}, shown]}],
        **({} if headers else {"cache_salt": f"tenant-{tenant}"}),
    }
    return client.post("/v1/chat/completions", json=body, headers=headers)


def _check(answer: httpx.Response) -> None:
    if answer.status_code != 200:
        raise EngineError(f"the engine answers {answer.status_code}: {answer.text[:300]}")


def table(found: Mapping[str, Seen]) -> str:
    """Returns a table of the findings, with a line for each side."""
    lines = [
        "seconds to the first token of an answer about a picture, medians",
        f"{'':<24} {'samples':>7} {'sent':>10} {'unsent':>10} {'AUC':>7} {'KS p':>9} {'by name alone':>14}",
    ]
    for name, seen in found.items():
        guess = distinguish(seen.sent, seen.unsent)
        sent, unsent = (1000 * median(each) for each in (seen.sent, seen.unsent))
        lines.append(
            f"{name:<24} {len(seen.sent):>7} {sent:>7.1f} ms {unsent:>7.1f} ms "
            f"{guess.auc:>7.3f} {guess.p_value:>9.2g} "
            f"{seen.served_by_name:>6} of {len(seen.sent)}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Start the engines, attack them in turn, and print the findings."""
    options = _options(arguments)
    make = partial(models.llava, vision_layers=_VISION_LAYERS, vision_width=_VISION_WIDTH)
    found: dict[str, Seen] = {}
    try:
        with attacked_engines(zones=2, make_model=make, variables={"PYTHONPATH": with_torchvision()}) as (stock, zones):
            for number, (name, engine, attacker) in enumerate(
                (("stock", stock, 1), ("across zones", zones, 1), ("its own, with zones", zones, 0))
            ):
                say(f"{name}: {options.samples} samples")
                found[name] = attack(engine, options.samples, attacker=attacker, seed=options.seed + number)
    except EngineError as error:
        sys.exit(f"bench.attacks.pictures: {error}")
    print(table(found))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.attacks.pictures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--samples", type=int, default=60, help="on each side (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of pictures and words (default: %(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
