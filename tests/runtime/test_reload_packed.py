"""Compressed configs, whose text is in two files."""

import gzip
import threading
from pathlib import Path

from tenantzone_contract.zone_config.config_text import dump_config
from tenantzone_contract.zone_config.packing import PackedHead
from tests.runtime.folders import config, project, zone
from tests.runtime.watched import generation_of, source


def files(generation: int, *tenants: str, packed: bool) -> dict[str, str | bytes]:
    """The files that kubelet projects: plain, or compressed."""
    made = config(generation, *map(zone, tenants))
    if not packed:
        return {"config.json": dump_config(made)}
    head = PackedHead(generation=generation, hash=made.hash).model_dump_json(by_alias=True)
    lines = "\n".join([made.pool.text, *(each.text for each in made.zones)])
    return {"config.json": head, "config.jsonl.gz": gzip.compress(lines.encode())}


def lay(folder: Path, content: dict[str, str | bytes]) -> None:
    """Writes the files into a plain folder, one after another."""
    for name, part in content.items():
        (folder / name).write_bytes(part.encode() if isinstance(part, str) else part)


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
