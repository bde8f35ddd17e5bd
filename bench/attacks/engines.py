"""The engines to attack: stock vLLM and vLLM with zones, with otherwise equal settings."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from bench.end_to_end import model
from bench.end_to_end.engines import Engine, Engines
from bench.progress import say


@contextmanager
def attacked_engines(
    zones: int,
    flags: Sequence[str] = (),
    make_model: Callable[[Path], None] = model.make,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[Engine, Engine]]:
    """Start stock vLLM, and vLLM with ``zones`` zones, each of whose tenants has a key.

    The engines run on all cores except one, on which the attacker runs. On a machine with one core all use that core.

    Args:
        zones: the number of zones of the second engine.
        flags: the vLLM flags of both engines.
        make_model: writes the model of both engines into a folder.
        variables: the environment variables of both engines.

    Raises:
        EngineError: an engine does not start.
    """
    cores = sorted(os.sched_getaffinity(0))
    engine_cores = cores[: max(1, len(cores) - 1)]
    with tempfile.TemporaryDirectory(prefix="attacks-") as name, Engines() as engines:
        folder = Path(name)
        say("making the model")
        make_model(folder / "model")
        started = []
        for side, count in (("stock", None), ("zones", zones)):
            own = folder / side
            own.mkdir()
            engine = Engine(
                side,
                count,
                model=folder / "model",
                folder=own,
                cores=engine_cores,
                tenants=count or 0,
                flags=flags,
                variables=variables,
            )
            engines.add(engine)
            started.append(engine)
        os.sched_setaffinity(0, set(cores) - set(engine_cores) or cores)
        engines.await_ready()
        yield started[0], started[1]
