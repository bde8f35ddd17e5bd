"""Messages between the API server and the processes that parse answers."""

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.engine.patches.parsers.parser_messages import LENGTH, Answer, Deltas, Shared

pieces = st.lists(st.tuples(st.text(max_size=5), st.lists(st.integers(0, 2**31), max_size=4)), max_size=20)


@given(pieces)
def test_the_pieces_of_a_stream_come_out_as_they_went_in(expected):
    deltas = Deltas()
    for text, ids in expected:
        deltas.add(text, ids)
    shared = Shared(())
    assert list(deltas) == expected
    assert list(shared.load(shared.dump(deltas)[LENGTH.size :])) == expected


def test_a_message_names_what_both_processes_have():
    class Local:
        """A class that cannot be pickled by its name."""

    both, other = [1], [1]
    shared = Shared((Local, both))
    message = shared.dump(Answer("result", (Local, both, other), 0.5))
    assert LENGTH.unpack(message[: LENGTH.size]) == (len(message) - LENGTH.size,)
    class_, same, copied = shared.load(message[LENGTH.size :]).value
    assert class_ is Local
    assert same == both
    assert copied == other
    assert copied is not other
    assert Local in shared
    assert other not in shared
