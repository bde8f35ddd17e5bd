"""The last good config, on real folders."""

import gzip
import json
import os
import threading
import time
from pathlib import Path

import pytest

from tenantzone_contract.config_text import dump_config, parse_config
from tenantzone_contract.packing import PackedHead
from tenantzone_runtime.reload import ConfigSource, across_swaps, projection_of
from tests.runtime.folders import config, config_text, project, zone

NOW = 1_000.0


def source(folder: Path) -> ConfigSource:
    return ConfigSource(folder, now=lambda: NOW)


def write(folder: Path, content: str | bytes) -> None:
    path = folder / "config.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def age(folder: Path) -> None:
    """Make the file so old that its time stamp can be relied on."""
    os.utime(folder / "config.json", (1, 1))


def test_no_folder_is_no_config_and_no_complaint(tmp_path):
    watched = source(tmp_path / "absent")
    assert not watched.poll()
    assert (watched.config, watched.rejection) == (None, None)


def test_an_empty_folder_is_no_config_and_no_complaint(tmp_path):
    watched = source(tmp_path)
    assert not watched.poll()
    assert (watched.config, watched.rejection) == (None, None)


def test_a_folder_that_appears_later_is_read(tmp_path):
    watched = source(tmp_path / "config")
    watched.poll()
    project(tmp_path / "config", {"config.json": config_text(1, "acme")})
    assert watched.poll()
    assert watched.config == parse_config(config_text(1, "acme"))


def test_a_swap_of_the_projection_is_noticed(tmp_path):
    watched = source(tmp_path)
    for generation in (1, 2, 3):
        project(tmp_path, {"config.json": config_text(generation, f"tenant-{generation}")})
        assert watched.poll()
        assert watched.config.generation == generation
        assert not watched.poll()


def test_an_unchanged_file_is_not_read_again(tmp_path, monkeypatch):
    write(tmp_path, config_text())
    age(tmp_path)
    watched = source(tmp_path)
    assert watched.poll()

    def fail(path: Path) -> bytes:
        raise AssertionError(f"{path} was read again")

    monkeypatch.setattr(Path, "read_bytes", fail)
    assert not watched.poll()


def test_a_second_write_that_leaves_the_same_stamp_is_noticed_while_the_file_is_fresh(tmp_path):
    write(tmp_path, config_text(1, "aaaa"))
    watched = source(tmp_path)
    watched.poll()
    status = (tmp_path / "config.json").stat()
    write(tmp_path, config_text(1, "bbbb"))
    os.utime(tmp_path / "config.json", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert watched.poll()
    assert watched.config.zones[0].tenant == "bbbb"


@pytest.mark.parametrize(
    ("content", "generation", "error"),
    [
        pytest.param("", None, "empty", id="empty"),
        pytest.param(config_text(2, "acme")[:-40], None, "not valid JSON", id="cut off"),
        pytest.param(b"\xff\xfe{}", None, "codec can't decode", id="bytes that are no text"),
        pytest.param("[1]", None, "expected a JSON object", id="no object"),
        pytest.param("[" * 100_000, None, "recursion", id="nested too deep"),
        pytest.param("9" * 5_000, None, "4300 digits", id="a number too long"),
        pytest.param(
            config_text(2).replace('"schemaVersion":1', '"schemaVersion":3'),
            2,
            "schemaVersion: 3 is newer",
            id="future",
        ),
        pytest.param(
            config_text(7, "acme").replace('"weight":1', '"weight":0'), 7, "zones[0].weight", id="field out of bounds"
        ),
        pytest.param(config_text(3, "acme").replace("acme", "evil"), 3, "hash: ", id="edited by hand"),
    ],
)
def test_a_bad_file_is_refused_and_the_last_good_config_stays(tmp_path, content, generation, error):
    watched = source(tmp_path)
    project(tmp_path, {"config.json": config_text(1, "acme")})
    watched.poll()
    good = watched.config
    project(tmp_path, {"config.json": content})
    assert watched.poll()
    assert watched.config is good
    assert error in watched.rejection.error
    assert (watched.rejection.generation, watched.rejection.unix_time) == (generation, NOW)
    assert not watched.poll()


def test_a_bad_file_with_none_before_is_refused_and_there_is_no_config(tmp_path):
    write(tmp_path, "{")
    watched = source(tmp_path)
    assert watched.poll()
    assert watched.config is None
    assert "not valid JSON" in watched.rejection.error


def test_a_file_that_can_not_be_read_is_refused(tmp_path):
    watched = source(tmp_path)
    write(tmp_path, config_text(1))
    watched.poll()
    good = watched.config
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").mkdir()
    assert watched.poll()
    assert watched.config is good
    assert "can't be read: Is a directory" in watched.rejection.error
    assert not watched.poll()


def test_a_file_that_goes_away_is_missed_and_the_last_good_config_stays(tmp_path):
    watched = source(tmp_path)
    write(tmp_path, config_text(1))
    watched.poll()
    good = watched.config
    (tmp_path / "config.json").unlink()
    assert watched.poll()
    assert watched.config is good
    assert "is missing" in watched.rejection.error
    assert not watched.poll(), "the same complaint is no news"
    write(tmp_path, config_text(1))
    assert watched.poll(), "that it is back is news"
    assert watched.config is good
    assert watched.rejection is None


def test_a_good_file_after_a_bad_one_clears_the_complaint(tmp_path):
    watched = source(tmp_path)
    for content in (config_text(1), "", config_text(2, "acme")):
        write(tmp_path, content)
        assert watched.poll()
    assert watched.rejection is None
    assert watched.config.generation == 2


def test_the_same_content_written_again_is_no_change(tmp_path):
    watched = source(tmp_path)
    project(tmp_path, {"config.json": config_text(1, "acme")})
    watched.poll()
    good = watched.config
    project(tmp_path, {"config.json": config_text(1, "acme")})
    assert not watched.poll()
    assert watched.config is good


def test_a_generation_that_goes_backwards_is_accepted(tmp_path):
    watched = source(tmp_path)
    write(tmp_path, config_text(9, "acme"))
    watched.poll()
    write(tmp_path, config_text(2, "burst"))
    assert watched.poll()
    assert watched.config.generation == 2


def test_a_refused_config_gives_way_to_the_one_before(tmp_path):
    watched = source(tmp_path)
    write(tmp_path, config_text(1, "acme"))
    watched.poll()
    good = watched.config
    write(tmp_path, config_text(2, "too-big"))
    watched.poll()
    watched.refuse("zones: reservations add up to more than there is")
    assert watched.config is good
    assert (watched.rejection.generation, watched.rejection.unix_time) == (2, NOW)
    assert not watched.poll(), "the same file is not tried again"
    write(tmp_path, config_text(1, "acme"))
    assert watched.poll()
    assert watched.config is good
    assert watched.rejection is None


def test_the_first_config_refused_leaves_none(tmp_path):
    watched = source(tmp_path)
    write(tmp_path, config_text(1))
    watched.poll()
    watched.refuse("does not fit")
    assert watched.config is None


def test_the_same_content_under_a_new_generation_is_taken_over(tmp_path):
    """The engine acknowledges a generation, so it must follow."""
    watched = source(tmp_path)
    write(tmp_path, config_text(1, "acme"))
    watched.poll()
    write(tmp_path, config_text(2, "acme"))
    assert watched.poll()
    assert watched.config.generation == 2


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
    """Whatever is read is whole: a mix would not fit its hash, and a vanished file would be missed."""
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


def files(generation: int, *tenants: str, packed: bool) -> dict[str, str | bytes]:
    """What kubelet projects: plain, or compressed."""
    made = config(generation, *map(zone, tenants))
    if not packed:
        return {"config.json": dump_config(made)}
    head = PackedHead(generation=generation, hash=made.hash).model_dump_json(by_alias=True)
    lines = "\n".join([made.pool.text, *(each.text for each in made.zones)])
    return {"config.json": head, "config.jsonl.gz": gzip.compress(lines.encode())}


def lay(folder: Path, content: dict[str, str | bytes]) -> None:
    """Into a plain folder, one file after the other."""
    for name, part in content.items():
        (folder / name).write_bytes(part.encode() if isinstance(part, str) else part)


def generation_of(watched: ConfigSource) -> int:
    assert watched.config is not None
    return watched.config.generation


def test_a_config_that_becomes_too_large_for_plain_text_and_small_again_is_followed(tmp_path):
    watched = source(tmp_path)
    for generation, packed in enumerate([False, True, True, False, True], start=1):
        project(tmp_path, files(generation, f"tenant-{generation}", packed=packed))
        assert watched.poll()
        assert (generation_of(watched), watched.rejection) == (generation, None)
        assert not watched.poll()


def test_compressed_content_of_another_generation_is_refused_until_both_files_fit(tmp_path):
    watched = source(tmp_path)
    first, second = files(1, "acme", packed=True), files(2, "late", packed=True)
    lay(tmp_path, first)
    watched.poll()

    lay(tmp_path, {**second, "config.jsonl.gz": first["config.jsonl.gz"]})

    assert watched.poll()
    assert generation_of(watched) == 1
    assert watched.rejection is not None
    assert "hash: the content has" in watched.rejection.error
    assert watched.rejection.generation == 2
    lay(tmp_path, second)
    assert watched.poll()
    assert (generation_of(watched), watched.rejection) == (2, None)


def test_compressed_content_that_is_missing_is_said_and_read_when_it_is_there(tmp_path):
    watched = source(tmp_path)
    packed = files(1, "acme", packed=True)
    lay(tmp_path, {"config.json": packed["config.json"]})

    assert watched.poll()
    assert watched.config is None
    assert watched.rejection is not None
    assert "config.jsonl.gz is missing" in watched.rejection.error
    lay(tmp_path, packed)
    assert watched.poll()
    assert (generation_of(watched), watched.rejection) == (1, None)


def test_content_that_kubelet_has_not_linked_yet_is_read(tmp_path):
    """It swaps the folder first, and makes the links of new files afterwards."""
    watched = source(tmp_path)
    project(tmp_path, files(1, "acme", packed=False))
    watched.poll()
    project(tmp_path, files(2, "late", packed=True))
    (tmp_path / "config.jsonl.gz").unlink()

    assert watched.poll()
    assert (generation_of(watched), watched.rejection) == (2, None)


def test_swaps_of_compressed_configs_while_it_reads_never_give_a_mix(tmp_path):
    made = [files(generation, f"tenant-{generation}", packed=generation % 3 != 0) for generation in range(1, 4)]
    project(tmp_path, made[0])
    watched, is_over = source(tmp_path), threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            for each in made:
                project(tmp_path, each)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        seen = set()
        for _ in range(500):
            watched.read_again()
            watched.poll()
            assert watched.rejection is None
            seen.add(generation_of(watched))
    finally:
        is_over.set()
        swapping.join()
    assert len(seen) > 1


def test_a_generation_that_no_operator_writes_is_refused(tmp_path):
    watched = source(tmp_path)
    write(tmp_path, config_text(1, "acme"))
    watched.poll()
    write(tmp_path, config_text(2**52, "late"))

    assert watched.poll()
    assert generation_of(watched) == 1
    assert watched.rejection is not None
    assert (watched.rejection.generation, "was not written by the operator" in watched.rejection.error) == (None, True)


@pytest.mark.parametrize("content", ['{"hash": "\\ud800"}', json.dumps({"pool": {"x" * 800_000: 1}}), '"\x1b[31m"'])
def test_what_is_said_of_a_bad_file_is_short_and_can_be_shown(tmp_path, content):
    watched = source(tmp_path)
    write(tmp_path, content)

    assert watched.poll()
    assert watched.rejection is not None
    assert len(watched.rejection.error) <= 1000
    assert watched.rejection.error.isprintable()


def test_a_write_while_it_reads_for_long_is_noticed(tmp_path, monkeypatch):
    """Two writes within one tick of the file system's clock leave the same stamp."""
    watched = source(tmp_path)
    write(tmp_path, config_text(1, "acme"))
    status = (tmp_path / "config.json").stat()
    read = Path.read_bytes

    def read_for_long(path: Path) -> bytes:
        content = read(path)
        write(tmp_path, config_text(2, "acme"))
        os.utime(tmp_path / "config.json", ns=(status.st_atime_ns, status.st_mtime_ns))
        time.sleep(0.15)
        return content

    monkeypatch.setattr(Path, "read_bytes", read_for_long)
    watched.poll()
    monkeypatch.undo()

    watched.poll()
    assert generation_of(watched) == 2
