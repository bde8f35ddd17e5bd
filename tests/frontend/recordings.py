"""What tests have recorded, without an engine."""

import asyncio

from tenantzone_runtime.frontend.recorder import current_asker, recorded
from tests.frontend.harness import SALT_KEY, call, echo

BLOCK_TOKENS = 4


def engine_that_computes(tokens, *, answer=(7, 7), apart=(), media=()):
    """An API server's calls for a request, as far as the recorder sees them."""

    async def app(scope, receive, send):
        asker = current_asker()
        if asker is not None:
            generation = asker.begin(BLOCK_TOKENS)
            generation.prompt, generation.apart, generation.media = tokens, apart, media
            generation.answers[0] = list(answer)
            generation.finish = "stop"
            asker.end(generation)
        await echo(scope, receive, send)

    return app


def record(recorder, tokens, *, tenant="acme", authorization=b"Bearer acme-key", salt_key=SALT_KEY, **more):
    call(recorded(engine_that_computes(tokens, **more), recorder, tenant, authorization, salt_key))


def asker_of(recorder):
    """The asker of a request that this recorder records."""
    found = []

    async def app(scope, receive, send):
        found.append(current_asker())

    asyncio.run(recorded(app, recorder, "acme", None, SALT_KEY)({}, None, None))
    return found[0]
