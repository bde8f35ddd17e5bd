"""Text from another party, before it is shown."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.text import REPLACEMENT, printable


@given(st.text(st.characters()))
def test_nothing_in_it_controls_anything(text: str):
    shown = printable(text)
    assert not any(unicodedata.category(character) in ("Cc", "Zl", "Zp", "Cs") for character in shown)
    assert not any(unicodedata.bidirectional(character) in ("RLO", "LRO", "RLE", "LRE", "PDF") for character in shown)
    shown.encode()


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"])))
def test_plain_text_stays(text: str):
    assert printable(text) == text


def test_what_is_taken_out_shows():
    assert printable("a\x1b[31mb") == f"a{REPLACEMENT}[31mb"


def test_lines_become_one():
    assert printable("one\r\n\ttwo\nthree") == "one two three"


def test_it_is_cut_to_the_length_that_is_asked_for():
    assert printable("x" * 100, 10) == "x" * 10
    assert printable("Ünïcödé äöü 漢字", 100) == "Ünïcödé äöü 漢字"
