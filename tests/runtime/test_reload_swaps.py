"""A read while kubelet swaps the folder: all of the old content or all of the new."""

import threading

import pytest

from tenantzone_runtime.reload import across_swaps, projection_of
from tests.runtime.folders import config_text, project
from tests.runtime.watched import source


def test_what_is_read_while_a_swap_happens_is_read_again(tmp_path):
    project(tmp_path, {"a": "1", "b": "1"})

    def read_and_be_overtaken() -> tuple[str, str]:
        a = (tmp_path / "a").read_text()
        if a == "1":
            project(tmp_path, {"a": "2", "b": "2"})
        return a, (tmp_path / "b").read_text()

    assert across_swaps(tmp_path, read_and_be_overtaken) == ("2", "2")


def test_what_a_swap_takes_away_is_looked_for_again(tmp_path):
    project(tmp_path, {"a": "1"})
    followed = projection_of(tmp_path)

    def read_where_the_link_led_a_moment_ago() -> str:
        nonlocal followed
        path = followed / "a"
        if path.read_text() == "1":
            project(tmp_path, {"a": "2"})
            followed = projection_of(tmp_path)
        return path.read_text()

    assert across_swaps(tmp_path, read_where_the_link_led_a_moment_ago) == "2"


def test_what_is_missing_without_a_swap_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        across_swaps(tmp_path, (tmp_path / "a").read_text)


def test_swaps_while_it_reads_never_give_a_mix(tmp_path):
    """All content that is read is whole: a mix would not fit its hash, and a vanished file would be missed."""
    project(tmp_path, {"config.json": config_text(1, "tenant-1")})
    watched = source(tmp_path)
    watched.poll()
    last = 200
    texts = [config_text(generation, *(f"{generation}-{n}" for n in range(20))) for generation in range(2, last + 1)]

    def swap() -> None:
        for text in texts:
            project(tmp_path, {"config.json": text})

    swapper = threading.Thread(target=swap)
    swapper.start()
    while swapper.is_alive():
        watched.poll()
        assert watched.rejection is None
    swapper.join()
    watched.poll()
    assert watched.config.generation == last
