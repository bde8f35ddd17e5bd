"""The table of features cites the tests that claim to show them."""

import ast
from pathlib import Path

import pytest

from hack.generate.features_page import (
    BY_CONFIGURATION,
    BY_REQUEST,
    BY_SETTING,
    PAGE,
    TESTS,
    Feature,
    Proof,
    contradictions,
    features,
    page,
    proofs,
)
from tenantzone_runtime.unsupported import UNSUPPORTED


def test_the_table_is_what_the_tests_show():
    assert PAGE.read_text() == page(), "run make features-page"


def test_tests_and_rows_do_not_contradict_each_other():
    assert contradictions(proofs(), features()) == []


@pytest.mark.parametrize(
    ("shown", "rows", "wrong"),
    [
        ({"a": []}, [Feature("a", "works")], []),
        ({}, [Feature("a", "works", unproven="There is no machine for it")], []),
        ({}, [Feature("a", "works")], ["'a' has no test, and no reason why"]),
        ({}, [Feature("a", "works", bench="python -m bench.a")], ["'a' has no test, and no reason why"]),
        ({"b": []}, [], ["tests show 'b', which is no row"]),
        ({"a": []}, [Feature("a", "works", unproven="why")], ["'a' has a test, and a reason why not"]),
        ({"a": []}, [Feature("a", "works")] * 2, ["'a' is there twice"]),
    ],
)
def test_what_contradicts_is_named(shown, rows, wrong):
    assert contradictions(shown, rows) == wrong


def test_each_test_that_a_row_names_is_there():
    for proof in (proof for shown in proofs().values() for proof in shown):
        module = ast.parse((TESTS / proof.path).read_text())
        assert proof.test in {node.name for node in ast.walk(module) if isinstance(node, ast.FunctionDef)}


def test_each_refusal_says_what_to_do_instead_and_is_tried():
    text = PAGE.read_text()
    assert {BY_SETTING, BY_CONFIGURATION, BY_REQUEST} <= proofs().keys()
    for unsupported in UNSUPPORTED:
        (row,) = [line for line in text.splitlines() if line.startswith(f"| {unsupported.feature} | ")]
        assert f" | {unsupported.instead} | `tests/" in row


MARKED = """
import pytest

@pytest.fixture(autouse=True)
def zones({autouse}): ...

@pytest.mark.shows("cats", "dogs")
@pytest.mark.parametrize("n", [1])
def test_one({fixture}, n): ...

class TestOthers:
    @pytest.mark.shows("dogs")
    async def test_two(self): ...
"""


@pytest.mark.parametrize(
    ("fixture", "autouse", "one", "two"), [("driver", "", 0, 0), ("engine", "", 1, 0), ("driver", "stock", 1, 1)]
)
def test_a_test_says_what_it_shows_and_its_fixtures_say_on_what(tmp_path: Path, fixture, autouse, one, two):
    (tmp_path / "test_pets.py").write_text(MARKED.format(fixture=fixture, autouse=autouse))
    first, second = Proof("test_pets.py", "test_one", bool(one)), Proof("test_pets.py", "test_two", bool(two))
    assert proofs(tmp_path) == {"cats": [first], "dogs": [first, second]}


def test_what_is_shown_must_be_written_out(tmp_path: Path):
    (tmp_path / "test_pets.py").write_text("@pytest.mark.shows(*PETS)\ndef test_one(): ...\n")
    with pytest.raises(ValueError, match="test_one must write out what it shows"):
        proofs(tmp_path)
