"""Durations as kubectl takes them."""

import pytest

from tenantzone_cli.arguments import read_arguments


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(
            ("3s", 3.0),
            ("500ms", 0.5),
            ("1m30s", 90.0),
            ("1h", 3600.0),
            ("1.5m", 90.0),
            ("30", 30.0),
            ("0.5", 0.5),
            ("+3s", 3.0),
        ),
        *(("100000us", 0.1), ("100000µs", 0.1), ("100000μs", 0.1), ("100000000ns", 0.1), (".5s", 0.5), ("1.s", 1.0)),
    ],
)
def test_a_duration_has_a_unit_or_is_in_seconds(text: str, seconds: float):
    assert read_arguments(["purge", "acme", "--timeout", text]).timeout == seconds
    assert read_arguments(["migrate", "acme", "--from=a", "--to=b", f"--timeout={text}"]).timeout == seconds
    assert read_arguments(["top", "--interval", text]).interval == seconds


def test_the_defaults_are_durations():
    assert read_arguments(["purge", "acme"]).timeout == 180
    assert read_arguments(["migrate", "acme", "--from=a", "--to=b"]).timeout == 3600


def test_advise_of_a_cluster_explains_its_flags(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        read_arguments(["advise", "--once", "--help"])

    assert ended.value.code == 0
    assert "such as 500ms or 5s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3 s", 'such as "60s"'),
        ("soon", 'such as "60s"'),
        ("nan", 'such as "60s"'),
        ("1d", 'such as "60s"'),
        ("0.1ns", "argument --timeout: expected 0s, or a duration of at least 1ns"),
        ("99999us", "from 100ms to 1h"),
        ("0s", "from 100ms to 1h"),
        ("2h", "from 100ms to 1h"),
        ("0", "from 100ms to 1h"),
    ],
)
def test_what_is_no_duration_is_refused(text: str, words: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        read_arguments(["purge", "acme", "--timeout", text])

    assert words in capsys.readouterr().err
