"""Loads and engines for the tests of the replay."""

from tenantzone_replay.simulation.hardware import MODELS
from tenantzone_replay.simulation.measures import Target
from tenantzone_replay.simulation.profile import profile
from tenantzone_replay.simulation.setting import Setting
from tenantzone_replay.traces.load import Asked
from tenantzone_runtime.engine.modelless.engine_shape import EngineShape

BLOCK_TOKENS = 16


def asked(arrival, tenant, content, *, own_tokens=8, output_tokens=4):
    """A request whose prompt begins with these blocks, followed by some tokens of its own."""
    known = len(content) * BLOCK_TOKENS
    return Asked(arrival, known + own_tokens, output_tokens, tuple(content), BLOCK_TOKENS, known, content[0], tenant)


def setting(requests, *, blocks, seats=16):
    return Setting(
        load=lambda: iter(requests),
        profile=profile(requests),
        shape=EngineShape(blocks=blocks, block_tokens=BLOCK_TOKENS, seats=seats, step_tokens=2048, longest=4096),
        hardware=MODELS["8b"],
        target=Target(first_token=0.5, token=0.1),
    )


def flood_next_to_a_quiet_tenant(*, rounds=60):
    """A quiet tenant repeats the same 20 blocks every second; meanwhile another one never repeats a prompt."""
    requests = []
    for number in range(rounds):
        requests.append(asked(float(number), "quiet", range(1, 21)))
        for each in range(1, 8):
            first = 1000 * (number * 10 + each)
            requests.append(asked(number + 0.1 * each, "flood", range(first, first + 40)))
    return requests
