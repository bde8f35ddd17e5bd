"""What one parser has read, so that another process can read it again and go on."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tenantzone_runtime.engine.parser_messages import Call, Deltas, NewParser
from tenantzone_runtime.engine.parser_processes import ParserProcess

PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "parse": ("model_output", "request", "enable_auto_tools", "model_output_token_ids"),
    "parse_delta": ("delta_text", "delta_token_ids", "request", "prompt_token_ids"),
    "is_reasoning_end": ("input_ids",),
    "count_reasoning_tokens": ("token_ids",),
    "set_prompt_token_ids": ("prompt_token_ids",),
}
"""The names of the parameters of a parser's methods that another process can call."""
_COMMON: Final = ("request", "prompt_token_ids")
"""Arguments of `parse_delta` that are the same for all pieces of a stream."""
SLOW_SECONDS: Final = 0.002
"""A stream leaves the event loop after a piece that takes its parser that long: the next ones take longer."""


class Reading:
    """What one parser was made of, and what it has read.

    Args:
        class_: of the parser.
        args: with which vLLM has made it.
        kwargs: with which vLLM has made it.
    """

    def __init__(self, class_: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.process: ParserProcess | None = None
        """The process that goes on reading; None: the API server does."""
        self.is_slow = False
        """Whether the last piece took long."""
        self._stays = False
        self._made_of = (class_, args, kwargs)
        self._prompt: Sequence[int] | None = None
        self._deltas = Deltas()
        self._common: dict[str, Any] = {}
        self._number: int | None = None
        """Of the parser in the process; None: it has no such parser yet."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether another process reads."""
        return self.process is not None

    @property
    def shared(self) -> list[Any]:
        """What messages to the process name: the parser's class, the tokenizer and the model's configuration."""
        class_, args, kwargs = self._made_of
        named = [*args[:1], *(kwargs[name] for name in ("tokenizer", "model_config") if name in kwargs)]
        return [class_, *(each for each in named if each is not None)]

    def can_move(self, name: str) -> bool:
        """Return whether another process can call a method."""
        return name in PARAMETERS and not self._stays

    def stay(self) -> None:
        """Note that no other process can read."""
        self._stays = True
        self.process = None

    def note(self, name: str, arguments: Mapping[str, Any], seconds: float) -> None:
        """Note a call of the parser's that has ended here.

        Args:
            name: of the method.
            arguments: of the call, by name.
            seconds: that it took.
        """
        if name == "set_prompt_token_ids":
            self._prompt = arguments["prompt_token_ids"]
        elif name == "parse_delta":
            self._deltas.add(arguments["delta_text"], arguments["delta_token_ids"])
            self._common = {each: arguments[each] for each in _COMMON if each in arguments}
            self.is_slow = seconds > SLOW_SECONDS

    def call(self, name: str, arguments: Mapping[str, Any], seconds: float, seconds_again: float) -> Call:
        """Return what to say to the process so that it calls a method.

        Args:
            name: of the method.
            arguments: of the call, by name.
            seconds: of a processor's time, that the call may take.
            seconds_again: those that reading again may take.
        """
        assert self.process is not None
        new = None
        if self._number is None:
            self._common = self._common or {each: arguments[each] for each in _COMMON if each in arguments}
            new = NewParser(*self._made_of, self._prompt, self._deltas, self._common)
            self._number = self.process.parsers
            self.process.parsers += 1
            self._deltas = Deltas()
        common = tuple(each for each in arguments if each in self._common and arguments[each] is self._common[each])
        own = {each: value for each, value in arguments.items() if each not in common}
        return Call(self._number, new, name, own, common, seconds, seconds_again)
