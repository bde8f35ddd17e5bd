"""Measures the size of a pool's config relative to a ConfigMap, and the time to write and read it, by kind of zones."""

import argparse
import random
import string
import time
from collections.abc import Callable, Mapping

from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.packing import MAX_CONFIG_MAP_BYTES, pack_config, unpack_config
from tenantzone_contract.zone_config.zone_terms import Idle, Lending

_LETTERS = string.ascii_lowercase + string.digits


def counted_up(number: int, _: random.Random) -> ZoneConfig:
    """Returns a zone with a numbered name, and a reservation."""
    name = f"tenant-{number:05}"
    return ZoneConfig(name=name, tenant=name, generation=1, reserved=number % 50)


def random_names(_: int, rng: random.Random) -> ZoneConfig:
    """Returns a zone with eight random characters in its name, and random values in four fields."""
    name = f"team-{_word(rng, 8)}"
    amounts = {"reserved": rng.randint(0, 500), "limit": rng.randint(600, 5000)}
    return ZoneConfig(name=name, tenant=name, generation=rng.randint(1, 30), weight=rng.randint(1, 9), **amounts)


def all_different(_: int, rng: random.Random) -> ZoneConfig:
    """Returns a zone with two random names as long as a UUID, and random values in every field."""
    return ZoneConfig(
        name=_word(rng, 36),
        tenant=_word(rng, 36),
        generation=rng.randint(1, 30),
        priority=rng.randint(-1000, 1000),
        reserved=rng.randint(0, 500),
        limit=rng.randint(600, 5000),
        weight=rng.randint(1, 9),
        lending=Lending(lendable=f"{rng.randint(1, 99)}%", max_loan_seconds=rng.randint(1, 1000)),
        idle=Idle(after_seconds=rng.randint(1, 100)),
    )


KINDS: Mapping[str, Callable[[int, random.Random], ZoneConfig]] = {
    "names counted up": counted_up,
    "random names": random_names,
    "all different": all_different,
}


def main() -> None:
    """Measure configs of each kind of zones, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.operator.config_size", description=__doc__)
    parser.add_argument("--zones", type=int, default=20_000, help="default: %(default)s")
    zones = parser.parse_args().zones
    pool = PoolConfig(namespace="bench", name="pool")
    print(f"{zones:,} zones{'':<14} bytes  a zone  of a ConfigMap   write s   read s")
    for name, make in KINDS.items():
        rng = random.Random(1)
        config = make_config(1, pool, tuple(make(number, rng) for number in range(zones)))
        began = time.perf_counter()
        files = pack_config(config)
        written = time.perf_counter()
        unpack_config(files)
        read = time.perf_counter()
        share = files.size / MAX_CONFIG_MAP_BYTES
        took = f"{written - began:>9.2f} {read - written:>8.2f}"
        print(f"{name:<20} {files.size:>10,} {files.size / zones:>7.0f} {share:>14.0%} {took}")


def _word(rng: random.Random, length: int) -> str:
    return "".join(rng.choices(_LETTERS, k=length))


if __name__ == "__main__":
    main()
