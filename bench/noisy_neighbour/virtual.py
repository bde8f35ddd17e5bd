"""The noisy neighbour in virtual time: vLLM's real scheduler, stock and with zones, with step times of a modelled H100.

The two tenants are the same as in the bench on real engines. The scheduler, its queue and its block pool are vLLM's,
but steps only take the time that the model would need (``tenantzone_replay.simulation.hardware``), with one or two
steps in flight.

    python -m bench.noisy_neighbour.virtual --plot noisy-neighbour-virtual.svg
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.noisy_neighbour.arms import ARMS, FLOOD, IDLE_SECONDS, SEATS, Arm, with_target
from bench.noisy_neighbour.asking import Answer, Shape
from bench.noisy_neighbour.eager_gpu import EagerGpu
from bench.noisy_neighbour.figures import Phase, Seed, table
from bench.noisy_neighbour.plot import draw, draw_frontier
from bench.noisy_neighbour.promises import promises
from bench.noisy_neighbour.virtual_tenants import VirtualTenants
from hack.harness.clock import Clock
from hack.harness.kv_caches import BLOCK_TOKENS
from hack.harness.scheduler import Driver, make_scheduler, vllm_config, with_flags
from tenantzone_replay.simulation.hardware import MODELS, Hardware
from tenantzone_replay.simulation.virtual_engine import VirtualEngine

VIRTUAL_ARMS = tuple(arm for arm in ARMS if arm.name in ("stock", "stock, by priority", "zones"))
HARDWARE: Mapping[str, Hardware] = {
    **MODELS,
    "8b-eager": EagerGpu(random.Random(0), overlaps=False, noise=0.0),
    "8b-eager-overlapped": EagerGpu(random.Random(0), overlaps=True, noise=0.0),
}
_WARM_ANSWERS = 2
"""Number of flood answers per seat after which the flood counts as being in steady state."""
_WARM_REQUESTS = 2
"""Number of requests of the quiet tenant before its measurement."""
_PUBLISHED = """
published by others, on other engines and loads (p99 TTFT with a flood to solo): KVWarden, A100, 8B: 1.14
(53.9 ms solo, 61.5 with a flood; 1,585 unprotected); llm-d-batch-gateway #491, gpt-oss-120b: 3.4 (96.5, 329.7; 941)"""


def main() -> None:
    """Run all arms of all models, and print a table for each."""
    options = _options()
    shape = Shape(requests=options.requests, rate=options.rate)
    with_targets = [with_target(seconds, first_token=options.first_token) for seconds in options.targets]
    arms = [*VIRTUAL_ARMS, *with_targets]
    targets = {arm.name: arm.target_seconds for arm in arms if arm.target_seconds is not None}
    for name in options.models:
        for steps_in_flight in options.steps_in_flight:
            title = f"{HARDWARE[name].title}, {steps_in_flight} in flight"
            results = {
                arm.name: [
                    measure(arm, HARDWARE[name], shape, steps_in_flight=steps_in_flight, seed=seed, options=options)
                    for seed in range(1, options.seeds + 1)
                ]
                for arm in arms
            }
            print(
                f"\n{title}:\n\n{table(results)}\n", *promises(results, steps_in_flight, targets), sep="\n", flush=True
            )
            if options.plot:
                place = options.plot.with_stem(f"{options.plot.stem}-{name}-{steps_in_flight}")
                draw(results, place)
                if targets:
                    draw_frontier(results, targets, place.with_stem(f"{place.stem}-frontier"))
    print(_PUBLISHED)


def measure(
    arm: Arm, hardware: Hardware, shape: Shape, *, steps_in_flight: int, seed: int, options: argparse.Namespace
) -> Seed:
    """Measure the quiet tenant solo, the flood alone, then both together, in one arm with one seed."""
    print(f"{hardware.title}, {steps_in_flight} in flight, seed {seed}: {arm.name}", file=sys.stderr, flush=True)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, clock.in_force():
        driver = make_driver(Path(folder), arm, hardware, seats=SEATS, budget=options.budget)
        tenants = VirtualTenants(driver, clock, arm, shape, seed)
        engine = VirtualEngine(driver, clock, hardware, tenants, steps_in_flight=steps_in_flight)
        tenants.ask_quietly()
        engine.run(lambda: tenants.is_quiet_done)
        solo, tenants.answers = tenants.answers, []
        needed_until = clock.seconds + IDLE_SECONDS
        tenants.flood(options.at_once)
        engine.run(lambda: tenants.flood_answers >= _WARM_ANSWERS * SEATS and clock.seconds >= needed_until)
        began, before = clock.seconds, tenants.flood_tokens
        engine.run(lambda: clock.seconds >= began + options.alone_seconds)
        alone = (tenants.flood_tokens - before) / (clock.seconds - began)
        # Warm up again, because the flood may fill a step that began while the quiet zone was idle.
        tenants.ask_quietly(_WARM_REQUESTS)
        engine.run(lambda: tenants.is_quiet_done)
        tenants.answers = []
        began, before = clock.seconds, tenants.flood_tokens
        tenants.ask_quietly()
        engine.run(lambda: tenants.is_quiet_done)
        flooded = (tenants.flood_tokens - before) / (clock.seconds - began)
        return Seed(_phase(solo), _phase(tenants.answers), flooded, alone, 0)


def make_driver(folder: Path, arm: Arm, hardware: Hardware, *, seats: int, budget: int) -> Driver:
    """Returns the scheduler of an arm, with as many blocks as fit into GPU memory next to the model.

    Args:
        folder: the folder for vLLM's config.
        arm: the arm, with its zones and scheduling policy.
        hardware: the model and its GPUs.
        seats: the maximum number of running requests.
        budget: the maximum number of tokens in a step.
    """
    config = vllm_config(folder, sequences=seats, max_batched_tokens=budget)
    if "priority" in arm.flags:
        config = with_flags(config, policy="priority")
    driver = Driver(make_scheduler(config, hardware.blocks(BLOCK_TOKENS), zones=arm.zones is not None))
    if arm.zones:
        driver.declare(*arm.zones)
    return driver


def _phase(answers: Sequence[Answer]) -> Phase:
    return Phase(
        tuple(answer.first_token_seconds for answer in answers),
        tuple(seconds for answer in answers for seconds in answer.token_seconds),
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.noisy_neighbour.virtual",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--models", nargs="+", choices=HARDWARE, default=list(MODELS), help="default: %(default)s")
    parser.add_argument("--steps-in-flight", nargs="+", type=int, choices=(1, 2), default=[1, 2])
    parser.add_argument(
        "--targets", nargs="+", type=float, default=[], metavar="SECONDS", help="an arm for each of them"
    )
    parser.add_argument("--first-token", action="store_true", help="targets are for the first token, too")
    parser.add_argument("--seeds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--requests", type=int, default=40, help="of the quiet tenant, per phase (%(default)s)")
    parser.add_argument("--rate", type=float, default=4.0, help="of them per second (default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=32, help=f"requests of the {FLOOD} (default: %(default)s)")
    parser.add_argument("--budget", type=int, default=8192, help="tokens of a step (default: %(default)s)")
    parser.add_argument("--alone-seconds", type=float, default=10.0, help="of the flood alone (default: %(default)s)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw distributions, to files named after this")
    return parser.parse_args()


if __name__ == "__main__":
    main()
