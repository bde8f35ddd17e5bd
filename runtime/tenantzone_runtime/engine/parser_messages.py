"""What the API server and the processes that parse answers say to each other."""

import io
import pickle
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

LENGTH: Final = struct.Struct("!Q")
"""Before each message: how many bytes it has."""


class Deltas:
    """The pieces of a stream that a parser has read, in little memory."""

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
    """A parser as vLLM has made it, and what it has read so far."""

    class_: type
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    prompt: Sequence[int] | None
    """Token ids that vLLM has set; None: it has set none."""
    deltas: Deltas
    """What it has read of a stream."""
    common: Mapping[str, Any]
    """The arguments that are the same for all calls: the request, and the tokens of its prompt."""


class Call(NamedTuple):
    """A call of a parser's method."""

    parser: int
    """A number of the process's own."""
    new: NewParser | None
    """Given with the first call of that parser."""
    method: str
    arguments: Mapping[str, Any]
    common: tuple[str, ...]
    """The names of arguments that are as for the first call of that parser."""
    seconds: float
    """Of a processor's time, that it may take."""
    seconds_again: float
    """Those that it may take to read again what the new parser has read."""


class Answer(NamedTuple):
    """What has come of a call."""

    kind: Literal["result", "raised", "spent"]
    value: Any
    """The result, or the exception that the parser has raised."""
    seconds: float
    """Of a processor's time, that the call took."""


class Shared:
    """Objects that two processes have since one was forked of the other. Messages only name them.

    Args:
        objects: the same in both processes.
    """

    def __init__(self, objects: Iterable[Any]) -> None:
        # The dictionary keeps them, so that no other object gets the identity of one of them.
        self._by_identity = {id(each): each for each in objects}

    def __contains__(self, value: Any) -> bool:
        return self._by_identity.get(id(value)) is value

    def dump(self, message: Any) -> bytes:
        """Return a message as bytes, with its length before.

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
        """Return the message that bytes without their length stand for."""
        return _Unpickler(io.BytesIO(message), self).load()

    def named(self, identity: int) -> Any:
        """Return the object with that identity."""
        return self._by_identity[identity]


class _Pickler(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, shared: Shared) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self._shared = shared

    def reducer_override(self, value: Any) -> Any:
        # Unlike `persistent_id`, Python does not call it for each number and text.
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
