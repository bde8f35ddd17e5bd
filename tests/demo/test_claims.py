"""The demo's exit code says whether its claims were observed."""

import pytest

from hack.demo.story.claims import Claims


def claims(*held: bool) -> Claims:
    made = Claims()
    for number, each in enumerate(held):
        made.check("a", f"claim {number}", "measured", held=each)
    return made


@pytest.mark.parametrize(
    ("held", "code"),
    [
        pytest.param([True, True], 0, id="each claim held"),
        pytest.param([True, False, True], 1, id="one failed"),
        pytest.param([], 1, id="a story that claimed nothing has shown nothing"),
    ],
)
def test_exit_code(held: list[bool], code: int):
    assert claims(*held).exit_code == code


def test_the_summary_names_each_claim_and_its_outcome(capsys: pytest.CaptureFixture[str]):
    made = claims(True, False)
    capsys.readouterr()
    made.summarize()
    rows = capsys.readouterr().out.splitlines()
    assert any("claim 0" in row and row.endswith("held") for row in rows)
    assert any("claim 1" in row and row.endswith("FAILED") for row in rows)
