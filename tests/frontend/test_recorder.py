"""What the recorder writes, and that it writes no content of prompts or answers."""

import gzip
import json
import os
import resource
import socket
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tenantzone_replay.traces.load import TraceError
from tenantzone_replay.traces.readers import recorded as reader
from tenantzone_runtime.frontend.middleware import TenantMiddleware
from tenantzone_runtime.frontend.record import HASH_BYTES
from tenantzone_runtime.frontend.recorder import Recorder
from tests.frontend.harness import PROMPT, call, settings
from tests.frontend.recordings import BLOCK_TOKENS, asker_of, engine_that_computes, record


@pytest.fixture
def recorder(tmp_path):
    recorder = Recorder(tmp_path / "recorded", 2**20, 2)
    yield recorder
    recorder.close()


def lines(folder):
    return [json.loads(line) for path in sorted(folder.glob("requests-*")) for line in path.read_text().splitlines()]


def hashes(line):
    letters = HASH_BYTES * 4 // 3
    text = line.get("hashes", "")
    return [text[at : at + letters] for at in range(0, len(text), letters)]


def test_a_line_has_lengths_and_hashes_of_full_blocks_and_nothing_else(recorder, tmp_path):
    record(recorder, range(10))
    recorder.close()
    (line,) = lines(tmp_path / "recorded")
    assert (line["tenant"], line["prompt_tokens"], line["output_tokens"], line["finish"]) == ("acme", 10, 2, "stop")
    assert len(hashes(line)) == 3, "two of the prompt, and one that the answer fills"
    assert line.keys() <= {
        "recorded", "time", "oldest", "tenant", "prompt_tokens", "output_tokens", "answers", "finish", "seconds",
        "block_tokens", "hashes",
    }  # fmt: skip


def test_hashes_show_what_prompts_have_in_common_and_where_they_part(recorder, tmp_path):
    for tokens in ([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6, 7, 9], [0, 2, 3, 4, 5, 6, 7, 8]):
        record(recorder, tokens, answer=())
    recorder.close()
    first, second, third = map(hashes, lines(tmp_path / "recorded"))
    assert first[0] == second[0]
    assert len({first[1], second[1], third[1]}) == 3, "a block's hash is one of all before it, too"


def test_what_keeps_prefixes_apart_in_the_engine_does_so_here(recorder, tmp_path):
    tokens = range(8)
    record(recorder, tokens, answer=())
    record(recorder, tokens, answer=(), apart=("adapter",))
    record(recorder, tokens, answer=(), media=((5, "cat"),))
    record(recorder, tokens, answer=(), media=((5, "dog"),))
    record(recorder, tokens, answer=(), salt_key=bytes(32))
    recorder.close()
    plain, adapter, cat, dog, other_key = map(hashes, lines(tmp_path / "recorded"))
    assert plain[0] == cat[0] == dog[0]
    assert len({plain[1], cat[1], dog[1]}) == 3
    assert len({plain[0], adapter[0], other_key[0]}) == 3


def test_who_asks_is_known_by_the_key_where_no_tenants_are(recorder, tmp_path):
    for key in (b"Bearer one", b"Bearer two", b"Bearer one", None):
        record(recorder, range(8), tenant="", authorization=key)
    recorder.close()
    one, two, again, anonymous = lines(tmp_path / "recorded")
    assert one["caller"] == again["caller"] != two["caller"]
    assert "caller" not in anonymous
    assert "one" not in json.dumps(one)
    asked = list(reader.read(tmp_path / "recorded"))
    assert [each.tenant for each in asked] == [f"caller-{each['caller']}" for each in (one, two, again)] + [""]


def test_files_are_rotated_and_the_oldest_go(tmp_path):
    recorder = Recorder(tmp_path, 1000, 2)
    for _ in range(30):
        record(recorder, range(400))
    recorder.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"requests-{socket.gethostname()}-{os.getpid()}.jsonl{end}" for end in ("", ".1", ".2")]
    assert all(line["prompt_tokens"] == 400 for line in lines(tmp_path))


def test_what_the_disk_does_not_take_is_counted_and_costs_no_request(tmp_path, caplog):
    folder = tmp_path / "recorded"
    recorder = Recorder(folder, 2**20, 2)
    folder.rmdir()
    folder.write_text("no folder")
    record(recorder, range(8))
    record(recorder, range(8))
    recorder._ended.join()
    folder.unlink()
    record(recorder, range(8))
    recorder.close()
    (line,) = lines(folder)
    assert line["lost"] == 2
    assert caplog.text.count("are not recorded") == 1


def test_a_disk_that_hangs_does_not_keep_a_process_from_ending(tmp_path, monkeypatch):
    monkeypatch.setattr("tenantzone_runtime.frontend.recorder._WAITING", 1)
    monkeypatch.setattr("tenantzone_runtime.frontend.recorder._LEAVE_SECONDS", 0.1)
    recorder = Recorder(tmp_path / "recorded", 2**20, 2)
    hangs, is_hanging = threading.Event(), threading.Event()

    def append(_):
        is_hanging.set()
        hangs.wait()

    monkeypatch.setattr(recorder._files, "append", append)
    record(recorder, range(8))
    assert is_hanging.wait(60)
    record(recorder, range(8))
    closing = threading.Thread(target=recorder.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    hangs.set()


@pytest.mark.parametrize("token", [2**32, 2**70, -1])
def test_tokens_that_no_model_has_leave_no_hashes_and_cost_no_line(recorder, tmp_path, token):
    record(recorder, range(8))
    record(recorder, [*range(8), token])
    record(recorder, range(8))
    recorder.close()
    before, line, after = lines(tmp_path / "recorded")
    assert (line["prompt_tokens"], hashes(line)) == (9, [])
    assert hashes(before) == hashes(after) != []
    assert "lost" not in after


def test_names_that_are_no_unicode_are_hashed_as_others_are(recorder, tmp_path):
    record(recorder, range(4), apart=("\ud800",), answer=())
    record(recorder, range(4), apart=("\ud801",), answer=())
    record(recorder, range(4), media=((0, "\ud802"),), answer=())
    recorder.close()
    assert len({hashes(line)[0] for line in lines(tmp_path / "recorded")}) == 3


def test_a_request_without_a_possible_line_costs_that_line_only(recorder, tmp_path, caplog):
    record(recorder, ["secret"] * 4)
    record(recorder, ["secret"] * 4)
    record(recorder, range(8))
    recorder.close()
    (line,) = lines(tmp_path / "recorded")
    assert line["lost"] == 2
    assert caplog.text.count("are not recorded") == 1
    assert "secret" not in caplog.text


def test_hashes_of_older_recordings_are_those_of_new_ones(recorder, tmp_path):
    record(recorder, range(8), apart=("adapter", "salt"), media=((5, "cat"),))
    recorder.close()
    (line,) = lines(tmp_path / "recorded")
    assert line["hashes"] == "lXwzt809hu8TIh+f"


@pytest.mark.parametrize("what", ["file", "folder"])
def test_after_a_file_is_removed_another_is_begun(recorder, tmp_path, what):
    folder = tmp_path / "recorded"
    record(recorder, range(4))
    recorder._ended.join()
    (path,) = folder.iterdir()
    path.unlink()
    if what == "folder":
        folder.rmdir()
    record(recorder, range(5))
    record(recorder, range(6))
    recorder.close()
    assert [line["prompt_tokens"] for line in lines(folder)] == [5, 6]
    assert "lost" not in lines(folder)[0]


@contextmanager
def full_disk(at_bytes):
    """Limits the size of files; of a longer line, only the part that fits is written."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (at_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_what_a_full_disk_cut_off_costs_no_other_line(recorder, tmp_path, capsys):
    record(recorder, range(4))
    recorder._ended.join()
    (path,) = (tmp_path / "recorded").iterdir()
    with full_disk(path.stat().st_size * 3 // 2):
        record(recorder, range(5))
        record(recorder, range(6))
        recorder._ended.join()
    record(recorder, range(7))
    recorder.close()
    assert [each.prompt_tokens for each in reader.read(tmp_path / "recorded")] == [4, 7]
    assert json.loads(path.read_text().splitlines()[-1])["lost"] == 2
    assert capsys.readouterr().err == "", "the part of a line was removed"


def test_a_line_that_was_not_recorded_is_refused(tmp_path):
    (tmp_path / "requests-1.jsonl").write_text('{"recorded": 1, "ti\nnonsense\n')
    with pytest.raises(TraceError, match="line 2: invalid JSON"):
        list(reader.read(tmp_path))


def test_a_process_that_comes_after_another_of_its_number_goes_on_behind_it(recorder, tmp_path):
    record(recorder, range(8))
    recorder.close()
    (path,) = (tmp_path / "recorded").iterdir()
    path.write_text(path.read_text() + '{"recorded": 1, "ti')
    after = Recorder(tmp_path / "recorded", 2**20, 2)
    record(after, range(9))
    after.close()
    assert [each.prompt_tokens for each in reader.read(tmp_path / "recorded")] == [8, 9]


def test_pods_whose_processes_have_one_number_share_a_folder(tmp_path, monkeypatch):
    pods = []
    for name in ("pod-a", "pod-b"):
        monkeypatch.setattr(socket, "gethostname", lambda name=name: name)
        pods.append(Recorder(tmp_path, 1000, 8))
    for length in range(4, 20):
        record(pods[length % 2], range(length))
    for pod in pods:
        pod.close()
    assert [each.prompt_tokens for each in reader.read(tmp_path)] == list(range(4, 20))


@pytest.mark.parametrize("former", ["requests-1", "requests-pod-a-1"])
def test_rotated_files_are_read_in_their_order_packed_or_not(recorder, tmp_path, former):
    for length in range(4, 17):
        record(recorder, range(length))
    recorder.close()
    (path,) = (tmp_path / "recorded").iterdir()
    written = path.read_text().splitlines(keepends=True)
    path.unlink()
    for age, line in enumerate(reversed(written)):
        plain = path.with_name(f"{former}.jsonl" + f".{age}" * bool(age))
        if age % 2:
            plain.with_name(plain.name + ".gz").write_bytes(gzip.compress(line.encode()))
        else:
            plain.write_text(line)
    assert [each.prompt_tokens for each in reader.read(tmp_path / "recorded")] == list(range(4, 17))


@pytest.mark.parametrize(("is_on", "expected"), [(True, ["acme"]), (False, [])])
def test_the_frontend_records_callers_that_it_lets_through_where_it_is_configured_to(folder, tmp_path, is_on, expected):
    chosen = replace(settings(folder), record_dir=tmp_path / "recorded" if is_on else None)
    frontend = TenantMiddleware(engine_that_computes(range(8)), chosen)
    assert call(frontend, body=PROMPT, key="acme-key").status_code == 200
    assert call(frontend, body=PROMPT, key="unknown").status_code == 401
    if is_on:
        frontend._recorder.close()
    assert [line["tenant"] for line in lines(tmp_path / "recorded")] == expected


def test_without_tenants_the_frontend_records_callers(tmp_path):
    chosen = replace(settings(tmp_path), record_dir=tmp_path / "recorded")
    frontend = TenantMiddleware(engine_that_computes(range(8)), chosen)
    assert call(frontend, body=PROMPT, key="stock").status_code == 200
    frontend._recorder.close()
    (line,) = lines(tmp_path / "recorded")
    assert "tenant" not in line
    assert line["caller"]


def test_arrivals_are_read_in_order_however_requests_end(recorder, tmp_path):
    asker, begun = asker_of(recorder), []
    for length in range(5, 10):
        begun.append(asker.begin(BLOCK_TOKENS))
        begun[-1].prompt = range(length)
    for place in (4, 1, 0, 3, 2):
        asker.end(begun[place])
    recorder.close()
    assert [line["prompt_tokens"] for line in lines(tmp_path / "recorded")] == [9, 6, 5, 8, 7]
    assert [each.prompt_tokens for each in reader.read(tmp_path / "recorded")] == [5, 6, 7, 8, 9]
