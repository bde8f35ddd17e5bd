"""Records the input of a parser, so that a parser in another process can read the input again and continue.

Upstream change that would make this module unnecessary: vLLM awaits its parsers and runs them in an executor.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tenantzone_runtime.engine.patches.parsers.parser_messages import Call, Deltas, NewParser
from tenantzone_runtime.engine.patches.parsers.parser_processes import ParserProcess

PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "parse": ("model_output", "request", "enable_auto_tools", "model_output_token_ids"),
    "parse_delta": ("delta_text", "delta_token_ids", "request", "prompt_token_ids"),
    "is_reasoning_end": ("input_ids",),
    "count_reasoning_tokens": ("token_ids",),
    "set_prompt_token_ids": ("prompt_token_ids",),
}
"""Parser methods that another process can call, with the names of their parameters."""
_COMMON: Final = ("request", "prompt_token_ids")
"""Arguments of `parse_delta` that are the same for all pieces of a stream."""
SLOW_SECONDS: Final = 0.002
"""If a piece takes more CPU seconds than this, the stream moves to a process, because later pieces take even longer."""


class Reading:
    """A parser's constructor arguments, and its input so far.

    Args:
        class_: the class of the parser.
        args: the positional arguments of vLLM's constructor call.
        kwargs: the keyword arguments of vLLM's constructor call.
    """

    def __init__(self, class_: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.process: ParserProcess | None = None
        """Process in which the parser continues, or None while it runs in the API server."""
        self.is_slow = False
        """Whether parsing the last piece took more than `SLOW_SECONDS`."""
        self._stays = False
        self._made_of = (class_, args, kwargs)
        self._prompt: Sequence[int] | None = None
        self._deltas = Deltas()
        self._common: dict[str, Any] = {}
        self._number: int | None = None
        """Number of the parser within the process, or None before the call that creates the parser there."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether the parser continues in another process."""
        return self.process is not None

    @property
    def shared(self) -> list[Any]:
        """Objects to which messages refer by identity: the parser class, the tokenizer and the model config."""
        class_, args, kwargs = self._made_of
        named = [*args[:1], *(kwargs[name] for name in ("tokenizer", "model_config") if name in kwargs)]
        return [class_, *(each for each in named if each is not None)]

    def can_move(self, name: str) -> bool:
        """Returns whether another process could call this method of the parser."""
        return name in PARAMETERS and not self._stays

    def stay(self) -> None:
        """Record that the parser can't continue in another process."""
        self._stays = True
        self.process = None

    def note(self, name: str, arguments: Mapping[str, Any], seconds: float) -> None:
        """Record a parser call that has completed in the API server.

        Args:
            name: the name of the method.
            arguments: the arguments of the call, by name.
            seconds: the CPU time of the call, in seconds.
        """
        if name == "set_prompt_token_ids":
            self._prompt = arguments["prompt_token_ids"]
        elif name == "parse_delta":
            self._deltas.add(arguments["delta_text"], arguments["delta_token_ids"])
            self._common = {each: arguments[each] for each in _COMMON if each in arguments}
            self.is_slow = seconds > SLOW_SECONDS

    def call(self, name: str, arguments: Mapping[str, Any], seconds: float, seconds_again: float) -> Call:
        """Returns the call to send to the process. The first call also makes the process create the parser.

        Args:
            name: the name of the method.
            arguments: the arguments of the call, by name.
            seconds: the maximum CPU time of the call, in seconds.
            seconds_again: the maximum CPU time for repeating the previous input, in seconds.
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
