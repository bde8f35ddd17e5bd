"""Copies in one list that are read later."""

import pytest

from tenantzone_runtime.zones.model.flat import put_mapping, take, take_mapping


def test_what_was_put_one_after_the_other_is_taken_so():
    values = [7]
    put_mapping(values, {"a": 1, "b": 2})
    put_mapping(values, {})
    put_mapping(values, {"c": None})
    values += "xyz"
    reading = iter(values)
    assert take(reading, 1) == (7,)
    assert [take_mapping(reading) for _ in range(3)] == [{"a": 1, "b": 2}, {}, {"c": None}]
    assert take(reading, 2) == ("x", "y")
    assert list(reading) == ["z"]


def test_a_copy_that_is_cut_off_is_not_taken_for_a_whole_one():
    values = []
    put_mapping(values, {"a": 1, "b": 2})
    with pytest.raises(ValueError, match="shorter"):
        take_mapping(iter(values[:-1]))
