"""The messages between the API server and the processes that parse answers."""

import io
import pickle
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

LENGTH: Final = struct.Struct("!Q")
"""The header of each message: its length in bytes."""


class Deltas:
    """The pieces of a stream that a parser has read, stored compactly."""

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
        """Add a piece: its text and its token ids."""
        self._text.write(text)
        self._characters.append(len(text))
        self._ids.extend(ids)
        self._counts.append(len(ids))


class NewParser(NamedTuple):
    """A parser's constructor arguments, and what it has read so far."""

    class_: type
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    prompt: Sequence[int] | None
    """Token ids that vLLM has set, or None."""
    deltas: Deltas
    """The pieces of a stream that it has read."""
    common: Mapping[str, Any]
    """Arguments that are the same for all calls: the request, and the tokens of its prompt."""


class Call(NamedTuple):
    """A call of a parser's method."""

    parser: int
    """A number assigned by the process."""
    new: NewParser | None
    """The parser to create; set in its first call."""
    method: str
    arguments: Mapping[str, Any]
    common: tuple[str, ...]
    """Names of arguments that equal those of that parser's first call."""
    seconds: float
    """Processor seconds that the call may take."""
    seconds_again: float
    """Processor seconds for reading again what the new parser has read."""


class Answer(NamedTuple):
    """The outcome of a call."""

    kind: Literal["result", "raised", "spent"]
    value: Any
    """The result, or the exception that the parser has raised."""
    seconds: float
    """Processor seconds that the call took."""


class Shared:
    """Objects that two processes share since one was forked from the other. Messages only name them.

    Args:
        objects: the same objects in both processes.
    """

    def __init__(self, objects: Iterable[Any]) -> None:
        # The dictionary keeps the objects alive, so that no other object gets the identity of one of them.
        self._by_identity = {id(each): each for each in objects}

    def __contains__(self, value: Any) -> bool:
        return self._by_identity.get(id(value)) is value

    def dump(self, message: Any) -> bytes:
        """Returns a message as bytes, preceded by its length.

        Raises:
            Exception: something in it cannot be pickled.
        """
        buffer = io.BytesIO()
        buffer.write(LENGTH.pack(0))
        _Pickler(buffer, self).dump(message)
        whole = buffer.getbuffer()
        LENGTH.pack_into(whole, 0, len(whole) - LENGTH.size)
        return whole.tobytes()

    def load(self, message: bytes) -> Any:
        """Returns the message in bytes that do not include its length."""
        return _Unpickler(io.BytesIO(message), self).load()

    def named(self, identity: int) -> Any:
        """Returns the object with that identity."""
        return self._by_identity[identity]


class _Pickler(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, shared: Shared) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self._shared = shared

    def reducer_override(self, value: Any) -> Any:
        # Unlike `persistent_id`, Python does not call this for each number and string.
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
    raise NotImplementedError("an unpickler puts `Shared.named` in place of this")
