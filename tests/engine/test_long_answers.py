"""Valid answers of 32,000 tokens are parsed as by stock vLLM, whole and streamed. `make test-deep` has all parsers."""

import json
import os
from collections import defaultdict
from functools import cache, partial

import pytest

from hack.harness.answer_parsers import (
    ParserName,
    chat_request,
    deltas,
    make_parser,
    markers_of,
    parse_stream,
    parse_whole,
    tokenizer,
)
from tenantzone_runtime.engine.patches.parsers.parser_bounds import bound_parsers
from tests.engine.test_parser_bounds import PROSE, VALID, comparable, one_of_each, outcome
from tests.engine.test_parser_processes import Serving, behind_the_frontend, everything

TOKENS = 32_000
"""Tokens of one byte each."""
FILLER = (PROSE * (TOKENS // len(PROSE) + 1))[:TOKENS].rstrip()
TOKENS_OF_PIECE = 64
STREAMED = ("hermes", "deepseek_r1")
"""Parsers whose streamed answers `make test-rest` covers, too."""
WHOLE = (*STREAMED, "dots", "llama3_json", "mistral", "poolside_v1", "pythonic", "qwen3_coder")
"""Parsers whose whole answers `make test-rest` covers."""
IS_DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"


def long(form: str) -> str:
    """A valid answer with one long argument, reasoning or text."""
    text = (
        VALID[form].replace('a \\"b\\" <c>', FILLER, 1).replace('"a"', json.dumps(FILLER), 1).replace("a b", FILLER, 1)
    )
    return text if len(text) > TOKENS else text.replace(PROSE, FILLER, 1)


@cache
def form_of(parser: ParserName) -> str:
    """The form in which a parser finds a tool call or reasoning; prose for a parser that knows none of the forms."""
    for form, text in VALID.items():
        try:
            reasoning, _, calls = parse_whole(make_parser(parser), text, chat_request())
        except Exception:
            continue  # Of another parser's.
        if (calls and parser.kind == "tool") or (reasoning and parser.kind == "reasoning"):
            return form
    return "prose"


def made(parser: ParserName):
    try:
        return make_parser(parser)
    except (TypeError, ImportError) as error:
        pytest.skip(str(error))


def folded(deltas_of_stream):
    """The content of all pieces of a stream together."""
    texts, calls = defaultdict(str), defaultdict(str)
    for delta in deltas_of_stream:
        if delta is None:
            continue
        texts["reasoning"] += delta.reasoning or ""
        texts["content"] += delta.content or ""
        for call in delta.tool_calls:
            if call.function is not None:
                calls[call.index] += (call.function.name or "") + (call.function.arguments or "")
    return dict(texts), dict(calls)


@pytest.fixture(scope="module", autouse=True)
def _bounded():
    bound_parsers()


each_parser = pytest.mark.parametrize("parser", list(one_of_each()), ids=lambda parser: f"{parser.kind} {parser.name}")


@each_parser
async def test_a_long_whole_answer_is_read_as_by_stock_vllm(parser: ParserName):
    if not IS_DEEP and parser.name not in WHOLE:
        pytest.skip("make test-deep reads it")
    made(parser)
    text = long(form_of(parser))
    stock = outcome(lambda: parse_whole(make_parser(parser), text, chat_request()))
    ids = tokenizer().encode(text, add_special_tokens=False)
    try:
        found, _ = await behind_the_frontend(lambda: Serving().whole(make_parser(parser), text, ids=ids))
        bounded = comparable(found)
    except Exception as error:
        # The parser of gpt-oss's answers reads its own tokens, and no text.
        bounded = f"{type(error).__name__}: {error}"
    assert bounded == stock


@each_parser
async def test_a_long_streamed_answer_is_read_as_by_stock_vllm(parser: ParserName):
    if not IS_DEEP and parser.name not in STREAMED:
        pytest.skip("make test-deep streams it")
    made(parser)
    single = list(deltas(long(form_of(parser)), markers_of(parser)))
    pieces = [joined(single[at : at + TOKENS_OF_PIECE]) for at in range(0, len(single), TOKENS_OF_PIECE)]
    try:
        stock = folded(parse_stream(make_parser(parser), pieces, chat_request(stream=True)))
    except Exception as error:
        # The parser of Hunyuan's answers takes pieces of one token only.
        with pytest.raises(type(error)):
            await behind_the_frontend(lambda: everything(partial(make_parser, parser), pieces))
        return

    found, _ = await behind_the_frontend(lambda: everything(partial(make_parser, parser), pieces))
    assert folded(found) == stock


def joined(pieces):
    return "".join(text for text, _ in pieces), [token for _, ids in pieces for token in ids]
