"""The requests of a flood to a real engine."""

from tests.engine.real_engine import RealEngine

BLOCK_TOKENS = 32


def ask(engine: RealEngine, tenant: str, prompt: str) -> int:
    """Sends a prompt. Returns how many of its tokens were cached."""
    answer = engine.client(tenant).completions.create(model="tiny", prompt=prompt, max_tokens=1, temperature=0)
    details = answer.usage.prompt_tokens_details if answer.usage else None
    return (details.cached_tokens if details else None) or 0


def text(seed: str, blocks: int) -> str:
    """A text; one byte is one token."""
    return (f"{seed}: " + "once upon a time " * blocks * 2)[: blocks * BLOCK_TOKENS + 1]
