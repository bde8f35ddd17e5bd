"""The messages between the API server and parser processes.

Upstream change that would make this module unnecessary: vLLM awaits its parsers and runs them in an executor.
"""

import io
import pickle
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

LENGTH: Final = struct.Struct("!Q")
"""The header of each message, which contains the length of the rest in bytes."""


class Deltas:
    """The pieces of a stream that a parser has read, in a compact form. A piece has a text and token ids."""

    def __init__(self) -> None:
        self._text = io.StringIO()
        self._characters = array("L")
        self._ids = array("q")
        self._counts = array("L")

    def __len__(self) -> int:
        return len(self._counts)

    def __iter__(self) -> Iterator[tuple[str, list[int]]]:
        text, ids = self._text.getvalue(), self._ids
        at = begin = 0
        for characters, count in zip(self._characters, self._counts, strict=True):
            yield text[at : at + characters], ids[begin : begin + count].tolist()
            at, begin = at + characters, begin + count

    def add(self, text: str, ids: Sequence[int]) -> None:
        """Add a piece with its text and its token ids."""
        self._text.write(text)
        self._characters.append(len(text))
        self._ids.extend(ids)
        self._counts.append(len(ids))


class NewParser(NamedTuple):
    """A parser's constructor arguments, and its input so far."""

    class_: type
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    prompt: Sequence[int] | None
    """Token ids that were passed to `set_prompt_token_ids`, or None if vLLM has not called this method."""
    deltas: Deltas
    """Pieces of a stream that the parser has read."""
    common: Mapping[str, Any]
    """Arguments that all calls share: the request, and the tokens of its prompt."""


class Call(NamedTuple):
    """A call of a parser's method."""

    parser: int
    """Number of the parser within the process."""
    new: NewParser | None
    """The parser to create first. None except in the parser's first call."""
    method: str
    arguments: Mapping[str, Any]
    common: tuple[str, ...]
    """Names of further arguments. Their values are in `NewParser.common`."""
    seconds: float
    """Maximum CPU time of the call, in seconds."""
    seconds_again: float
    """Maximum CPU time in seconds in which the new parser reads its previous input again."""


class Answer(NamedTuple):
    """The outcome of a call."""

    kind: Literal["result", "raised", "spent"]
    value: Any
    """The method's result, or the exception that the method has raised. None if the outcome is "spent"."""
    seconds: float
    """CPU time of the call, in seconds."""


class Shared:
    """Objects that exist in two processes, because one process was forked from the other.

    In messages between the processes, each object is replaced by its identity (``id()``).

    Args:
        objects: the objects. They have the same identities in both processes.
    """

    def __init__(self, objects: Iterable[Any]) -> None:
        # The dictionary keeps the objects alive, so that no other object can get their identities.
        self._by_identity = {id(each): each for each in objects}

    def __contains__(self, value: Any) -> bool:
        return self._by_identity.get(id(value)) is value

    def dump(self, message: Any) -> bytes:
        """Returns a message as bytes, preceded by its length.

        Raises:
            Exception: an object in the message cannot be pickled.
        """
        buffer = io.BytesIO()
        buffer.write(LENGTH.pack(0))
        _Pickler(buffer, self).dump(message)
        whole = buffer.getbuffer()
        LENGTH.pack_into(whole, 0, len(whole) - LENGTH.size)
        return whole.tobytes()

    def load(self, message: bytes) -> Any:
        """Returns the message in these bytes, which must not include the header."""
        return _Unpickler(io.BytesIO(message), self).load()

    def named(self, identity: int) -> Any:
        """Returns the object with that identity."""
        return self._by_identity[identity]


class _Pickler(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, shared: Shared) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self._shared = shared

    def reducer_override(self, value: Any) -> Any:
        # Faster than `persistent_id`, because Python does not call this for each number and string.
        return (_named, (id(value),)) if value in self._shared else NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, shared: Shared) -> None:
        super().__init__(buffer)
        self._shared = shared

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (_named.__module__, _named.__name__):
            return self._shared.named
        return super().find_class(module, name)


def _named(identity: int) -> Any:
    raise NotImplementedError("the unpickler replaces this function with `Shared.named`")
