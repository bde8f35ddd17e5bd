"""vLLM's tool and reasoning parsers, made as its API server makes them, with a tokenizer that has all their markers."""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import vllm
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager

from hack.demo.models.tiny_model import byte_tokenizer

Kind = Literal["tool", "reasoning"]

_FOLDERS: Final = ("tool_parsers", "reasoning", "parser")
"""The folders of vLLM's package that contain parsers."""
_MARKER: Final = re.compile(r"</?[^\s<>{}\\]{1,40}>?|\[/?[A-Z_]{3,20}\]|functools")
"""Matches markers that a parser looks for, such as `<tool_call>`."""
_LONGEST_MARKER: Final = 60
_PARTS_OF_MARKERS: Final = ("Ġ</", "</", "think")
"""Tokens that a model's tokenizer has, and ours of bytes has not, which a parser asks for."""
TOOLS: Final = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "parameters": {"type": "object", "properties": {"what": {"type": "string"}, "how": {"type": "object"}}},
        },
    }
]


class ParserName(NamedTuple):
    """A parser as vLLM's flags name it."""

    kind: Kind
    name: str


def registered() -> list[ParserName]:
    """Return all tool and reasoning parsers of the installed vLLM."""
    tools = [ParserName("tool", name) for name in sorted(ToolParserManager.list_registered())]
    return tools + [ParserName("reasoning", name) for name in sorted(ReasoningParserManager.list_registered())]


def chat_request(*, stream: bool = False) -> ChatCompletionRequest:
    """Return a request that offers a tool."""
    return ChatCompletionRequest.model_validate(
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "hi"}],
            "tools": TOOLS,
            "stream": stream,
            "skip_special_tokens": False,
        }
    )


def vllm_version() -> str:
    """Return the version of the installed vLLM."""
    return str(vllm.__version__)


@cache
def tokenizer() -> Any:
    """Return a tokenizer with a token for each byte, and for each marker of any parser."""
    package = Path(vllm.__file__).parent
    files = (file for folder in _FOLDERS for file in sorted((package / folder).rglob("*.py")))
    found = {marker for file in files for marker in markers_in(file)}
    made = byte_tokenizer()
    whole = sorted(each for each in found if each[-1] in ">]")
    made.add_special_tokens({"additional_special_tokens": [*whole, *_PARTS_OF_MARKERS]})
    return made


@cache
def parser_class(parser: ParserName) -> Any:
    """Return the class that vLLM's API server makes for a parser.

    Raises:
        TypeError: the parser needs what is not here: another package, or a tokenizer of its own.
    """
    get_parser = ParserManager.get_parser
    takes_tokenizer = "tokenizer" in signature(get_parser).parameters  # since vLLM 0.32
    return get_parser(
        tool_parser_name=parser.name if parser.kind == "tool" else None,
        reasoning_parser_name=parser.name if parser.kind == "reasoning" else None,
        enable_auto_tools=True,
        **({"tokenizer": tokenizer()} if takes_tokenizer else {}),
    )


def make_parser(parser: ParserName) -> Any:
    """Return a new parser, as for one request."""
    return parser_class(parser)(tokenizer(), chat_request().tools)


def make_reasoning_parser(name: str) -> Any:
    """Return a new reasoning parser, as vLLM's engine core makes it.

    Raises:
        TypeError: the parser needs what is not here: another package, or a tokenizer of its own.
    """
    return ReasoningParserManager.get_reasoning_parser(name)(tokenizer())


def markers_of(parser: ParserName) -> list[str]:
    """Return what a parser looks for in an answer, the beginnings of tool calls and reasoning first."""
    class_ = parser_class(parser)
    part = class_.tool_parser_cls if parser.kind == "tool" else class_.reasoning_parser_cls
    # Some parsers only adapt one that reads tool calls and reasoning alike.
    classes = (*part.__mro__, *getattr(part, "_parser_engine_cls", object).__mro__)
    modules = dict.fromkeys(each.__module__ for each in classes if each.__module__.startswith("vllm."))
    files = [Path(str(sys.modules[module].__file__)) for module in modules]
    found = list(dict.fromkeys(marker for file in files for marker in markers_in(file)))
    return sorted(found, key=lambda marker: (marker.startswith("</") or "end" in marker, "call" not in marker))


def markers_in(file: Path) -> Iterator[str]:
    """Return the markers that stand as texts in a module."""
    for node in ast.walk(ast.parse(file.read_text())):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and 2 < len(text) <= _LONGEST_MARKER and _MARKER.fullmatch(text):
            yield text


def deltas(text: str, markers: list[str]) -> Iterator[tuple[str, list[int]]]:
    """Divide an answer into the pieces of a stream: one token each, with a marker as a token."""
    encode = tokenizer().encode
    pattern = re.compile("|".join(map(re.escape, sorted(markers, key=len, reverse=True))) or r"(?!)")
    at = 0
    for match in [*pattern.finditer(text), None]:
        for character in text[at : len(text) if match is None else match.start()]:
            yield character, encode(character, add_special_tokens=False)
        if match is not None:
            yield match[0], encode(match[0], add_special_tokens=False)
            at = match.end()


def parse_stream(
    parser: Any,
    pieces: list[tuple[str, list[int]]],
    request: ChatCompletionRequest,
    before: Callable[[list[int]], None] = lambda ids: None,
) -> list[Any]:
    """Have a parser read a stream, and return what it says to each piece.

    Args:
        parser: new.
        pieces: text and token ids of each.
        request: that the answer is for.
        before: called with the token ids of each piece before the parser gets it.
    """
    deltas, prompt = [], [3]
    for number, (text, ids) in enumerate(pieces):
        before(ids)
        deltas.append(parser.parse_delta(text, ids, request, prompt, finished=number == len(pieces) - 1))
    return deltas


def parse_whole(parser: Any, text: str, request: ChatCompletionRequest) -> Any:
    """Have a parser read a whole answer."""
    return parser.parse(text, request, True, tokenizer().encode(text, add_special_tokens=False))
