"""No piece of a stream has many log probabilities, whatever its cause."""

import asyncio
import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
from vllm.logprobs import Logprob
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.detokenizer import IncrementalDetokenizer
from vllm.v1.engine.output_processor import RequestOutputCollector

from tenantzone_runtime.engine.patches.refusals import _passing_refusals_on
from tenantzone_runtime.engine.patches.stream_pieces import MAX_LOGPROBS_OF_PIECE, StreamPieces, tokens_of_piece
from tenantzone_runtime.frontend.request_context import RequestContext
from tenantzone_runtime.frontend.responses.engine_refusal import refusable

WORDS = ["a ", "bc ", "", "def "]
TOP = 20
TAG = "</think>"
TEXT = "the quick brown fox jumps over a lazy dog and so it is done now"


def step(number: int, index: int = 0, last: bool = False, logprobs: int | None = TOP) -> RequestOutput:
    """The engine's output for one step of a stream."""
    token = number % len(WORDS)
    known = (
        None if logprobs is None else [{i: Logprob(-1.0, i, WORDS[token]) for i in range(token, token + logprobs + 1)}]
    )
    completion = CompletionOutput(
        index=index,
        text=WORDS[token],
        token_ids=[token],
        cumulative_logprob=-1.0 if known else None,
        logprobs=known,
        finish_reason="length" if last else None,
        stop_reason=7 if last else None,
    )
    return RequestOutput("r", "p", [1], None, [completion], last)


def joined(steps: int, indices: int = 1, logprobs: int | None = TOP) -> RequestOutput:
    """The output that vLLM joins from steps that the client has not read yet."""
    collector = RequestOutputCollector(RequestOutputKind.DELTA, "r")
    for number in range(steps):
        for index in range(indices):
            collector.put(step(number, index, number == steps - 1, logprobs))
    output = collector.get_nowait()
    assert isinstance(output, RequestOutput)
    return output


class WordTokenizer:
    """A tokenizer of `WORDS`."""

    def decode(self, ids: list[int], **_: object) -> str:
        return "".join(WORDS[token] for token in ids)


async def in_pieces(outputs: list[RequestOutput], asked: SamplingParams, tokenizer: Any) -> list[RequestOutput]:
    """The pieces of a request's outputs, in an API server behind the frontend."""
    found: list[RequestOutput] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        pieces = StreamPieces(asked, 32_000, tokenizer)
        found.extend([piece for output in outputs async for piece in pieces.of(output)])

    await RequestContext().carried_through(app)({}, None, None)
    return found


async def pieces_of(output: RequestOutput) -> list[RequestOutput]:
    """Pieces of at most 48 tokens each."""
    return await in_pieces([output], params(logprobs=TOP), WordTokenizer())


def params(**fields: Any) -> SamplingParams:
    return SamplingParams(output_kind=RequestOutputKind.DELTA, **fields)


@pytest.mark.parametrize("indices", [1, 3])
@pytest.mark.parametrize("steps", [1, 48, 49, 1000])
async def test_pieces_are_small_and_have_all_of_the_answer(steps, indices):
    pieces = await pieces_of(joined(steps, indices))
    whole = joined(steps, indices)
    for index in range(indices):
        parts = [part for piece in pieces for part in piece.outputs if part.index == index]
        assert "".join(part.text for part in parts) == whole.outputs[index].text
        assert [token for part in parts for token in part.token_ids] == whole.outputs[index].token_ids
        assert [each for part in parts for each in part.logprobs] == whole.outputs[index].logprobs
        *others, last = parts
        assert (last.finish_reason, last.stop_reason) == ("length", 7)
        assert {(part.finish_reason, part.stop_reason) for part in others} <= {(None, None)}
    assert max(sum(len(part.token_ids) for part in piece.outputs) for piece in pieces) <= 48
    assert [piece.finished for piece in pieces] == [False] * (len(pieces) - 1) + [True]


async def test_the_event_loop_goes_on_after_each_piece():
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    pieces = await pieces_of(joined(480))
    counting.cancel()
    assert len(pieces) == 10
    assert turns >= 9


async def test_tokens_keep_their_places_in_the_text():
    """As vLLM formats them, in pieces or as a whole."""
    serving = OpenAIServingCompletion.__new__(OpenAIServingCompletion)
    serving.return_tokens_as_token_ids = False

    def places(part: CompletionOutput, text_before: int) -> list[int]:
        return serving._create_completion_logprobs(
            token_ids=part.token_ids,
            top_logprobs=part.logprobs,
            num_output_top_logprobs=TOP,
            tokenizer=SimpleNamespace(decode=lambda token: WORDS[token]),
            initial_text_offset=text_before,
        ).text_offset

    found, text_before = [], 0
    for piece in await pieces_of(joined(200)):
        (part,) = piece.outputs
        found += places(part, text_before)
        text_before += len(part.text)
    assert found == places(joined(200).outputs[0], 0)


@pytest.mark.parametrize(
    ("asked", "most"),
    [
        (params(logprobs=20), MAX_LOGPROBS_OF_PIECE // 21),
        (params(logprobs=0), MAX_LOGPROBS_OF_PIECE),
        (params(logprobs=-1), 1),
        (params(logprob_token_ids=[1, 2, 3]), MAX_LOGPROBS_OF_PIECE // 4),
        (params(), None),
        (SamplingParams(logprobs=20, output_kind=RequestOutputKind.FINAL_ONLY), None),
    ],
)
async def test_only_streams_with_log_probabilities_are_divided(asked, most):
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(tokens_of_piece(asked, 32_000))

    found = []

    async def send(value: Any) -> None:
        found.append(value)

    await RequestContext().carried_through(app)({}, send, send)
    assert found == [most]
    assert tokens_of_piece(asked, 32_000) is None, "without the frontend vLLM is as stock"


def generated() -> Any:
    """What vLLM's API server receives from an engine that answers with a thousand tokens at once."""

    class Validation:
        async def before(self, *_: object) -> None:
            """Accepts everything."""

    async def generate(engine: Any, prompt: Any, sampling_params: Any, request_id: str) -> Any:
        yield joined(1000)

    engine = SimpleNamespace(
        model_config=SimpleNamespace(get_vocab_size=lambda: 32_000),
        input_processor=SimpleNamespace(structured_outputs_config=None, tokenizer=None),
    )
    return _passing_refusals_on(generate, Validation())(engine, {"prompt_token_ids": [1]}, params(logprobs=TOP), "r")


async def test_what_the_engine_gives_comes_to_the_api_in_pieces():
    sizes = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async for output in generated():
            sizes.append(sum(len(part.logprobs) * (TOP + 1) for part in output.outputs))

    context = RequestContext()
    await context.carried_through(app)({}, None, None)
    assert max(sizes) <= MAX_LOGPROBS_OF_PIECE
    assert sum(sizes) == 1000 * (TOP + 1)
    assert context.parsing.tokens == 1000, "the parsers' budget goes by the tokens of the answer"


async def test_what_the_frontend_kept_back_is_sent_when_the_engine_begins_to_answer():
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"data: begun", "more_body": True})
        assert sent == []
        async for _ in generated():
            assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]

    async def send(message: Any) -> None:
        sent.append(message)

    listener = SimpleNamespace(is_ready=lambda: None, is_refused=lambda refusal, seconds: None)
    await refusable(app, listener)({"type": "http", "path": "/v1/responses"}, None, send)
    assert sent


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens are words with the space before them; it decodes a first word without the space."""
    vocabulary = {"<unk>": 0, "▁": 1} | {f"▁{word}": number for number, word in enumerate(TEXT.split(), start=2)}
    made = Tokenizer(models.WordLevel(vocabulary, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    made.add_tokens([AddedToken(TAG, special=False, normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")


def streamed(ids: list[int], asked: SamplingParams, tokenizer: PreTrainedTokenizerFast, interval: int) -> Any:
    """What vLLM's detokenizer makes of an answer, in outputs of `interval` tokens."""
    names = inspect.signature(EngineCoreRequest).parameters
    known = {"request_id": "r", "prompt_token_ids": ids[:3], "sampling_params": asked, "arrival_time": 0.0}
    request = EngineCoreRequest(**dict.fromkeys(names) | known)
    detokenizer = IncrementalDetokenizer.from_new_request(tokenizer, request)
    for begin in range(0, len(ids), interval):
        some, is_last = ids[begin : begin + interval], begin + interval >= len(ids)
        detokenizer.update(some, False)
        logprobs = [{token: Logprob(-1.0, 1, tokenizer.decode([token]))} for token in some]
        completion = CompletionOutput(0, detokenizer.get_next_output_text(is_last, True), some, -1.0, logprobs)
        completion.finish_reason = "stop" if is_last else None
        yield RequestOutput("r", "p", ids[:3], None, [completion], is_last)


@pytest.mark.parametrize("interval", [50, 110, 1000])
@pytest.mark.parametrize("stop", [[], ["\n\nHuman:"], ["\n\n" + "Human " * 10]], ids=["no stop", "short", "long"])
async def test_a_piece_has_the_text_of_its_tokens(tokenizer, stop, interval):
    """Parsers look for the text of a tag in the piece that has its token."""
    words = tokenizer.encode(TEXT, add_special_tokens=False)
    tag = tokenizer.convert_tokens_to_ids(TAG)
    asked = params(logprobs=TOP, stop=stop)
    for place in range(40, 110):
        ids = [*(words * 10)[:place], tag, *(words * 10)[:60]]
        outputs = list(streamed(ids, asked, tokenizer, interval))
        parts = [part for piece in await in_pieces(outputs, asked, tokenizer) for part in piece.outputs]
        assert "".join(part.text for part in parts) == "".join(output.outputs[0].text for output in outputs)
        (with_tag,) = [number for number, part in enumerate(parts) if tag in part.token_ids]
        # Text that vLLM withholds at the end of an output comes with the next one, on stock vLLM, too.
        (output,) = [each for each in outputs if tag in each.outputs[0].token_ids]
        behind = output.outputs[0].token_ids[output.outputs[0].token_ids.index(tag) + 1 :]
        is_withheld = not output.finished and len(tokenizer.decode(behind)) < max(map(len, stop), default=1)
        assert TAG in parts[with_tag].text or is_withheld
