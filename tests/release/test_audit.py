"""`make audit` with the real pip-audit, and our own source of vulnerability data."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hack import locked
from hack.audit import LOCKS, SourceError, ask, audit, read_answer
from hack.ports import free_ports

PROJECT = Path(__file__).parents[2]
HASH = "--hash=sha256:" + "0" * 64
BUG = {
    "id": "PYSEC-2099-1",
    "affected": [
        {
            "package": {"name": "idna", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.7"}]}],
        }
    ],
}


class Source:
    """Answers as OSV does: the known vulnerabilities of a package, by its name."""

    def __init__(self) -> None:
        self.bugs: dict[str, list[dict[str, Any]]] = {}
        self.status = 200
        self.asked: list[str] = []
        source = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                name = query["package"]["name"]
                source.asked.append(name)
                bugs = source.bugs.get(name)
                self.send_response(source.status)
                self.end_headers()
                self.wfile.write(json.dumps({"vulns": bugs} if bugs else {}).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1/query"


@pytest.fixture
def source() -> Iterator[Source]:
    made = Source()
    threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    file = tmp_path / "some.txt"
    file.write_text(f"idna==3.6 {HASH}\npackaging==24.0 {HASH}\n")
    return file


def test_where_nothing_is_known_against_any_package_all_is_well(source: Source, lock: Path, capfd: Any):
    assert audit([lock], source.url) == 0
    assert sorted(source.asked) == ["idna", "packaging"]
    assert "some.txt: 2 packages looked up, 0 findings" in capfd.readouterr().err


def test_what_is_known_is_shown_with_what_fixes_it(source: Source, lock: Path, capfd: Any):
    source.bugs["idna"] = [BUG]
    assert audit([lock], source.url) == 1
    assert "idna 3.6: PYSEC-2099-1, fixed in 3.7" in capfd.readouterr().err


def test_a_source_that_is_not_there_is_no_good_news(lock: Path):
    (port,) = free_ports(1)
    unreachable = ("--vulnerability-service=osv", f"--osv-url=http://127.0.0.1:{port}/v1/query")
    with pytest.raises(SourceError, match="Connection"):
        ask(_pip_audit(), lock, unreachable)


def test_one_in_trouble_is_none_either(source: Source, lock: Path):
    source.status = 500
    with pytest.raises(SourceError, match="ServiceError"):
        ask(_pip_audit(), lock, ("--vulnerability-service=osv", f"--osv-url={source.url}"))


def test_where_no_source_answers_the_audit_fails_and_says_so(lock: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch):
    # The package index, which comes next, may be reachable or not.
    monkeypatch.setattr("hack.audit.ask", _ignore)
    assert audit([lock], "http://127.0.0.1:1") == 2
    assert "FAILED: of some packages nothing is known" in capfd.readouterr().err


def _ignore(*_: object) -> None:
    raise SourceError("it is away")


def _pip_audit() -> Path:
    return locked.environment("audit", PROJECT / "requirements" / "audit.txt") / "bin" / "pip-audit"


SKIPPED = {"name": "torch", "skip_reason": "not found"}
FINE = {"name": "idna", "version": "3.6", "vulns": []}


@pytest.mark.parametrize("answer", ["", "No known vulnerabilities found", "[]", "{}", json.dumps({"dependencies": []})])
def test_what_is_no_answer_is_no_good_news(answer: str):
    with pytest.raises(SourceError):
        read_answer(answer)


def test_a_source_that_knows_no_package_at_all_is_none():
    with pytest.raises(SourceError, match=r"it knows none of 1 packages \(torch: not found\)"):
        read_answer(json.dumps({"dependencies": [SKIPPED]}))


def test_an_unknown_package_is_named():
    found = read_answer(json.dumps({"dependencies": [SKIPPED, FINE]}))
    assert (found.looked_up, found.unknown, found.vulnerable) == (1, ("torch: not found",), ())


def test_all_that_is_shipped_is_audited():
    assert {"operator", "cpu", "gpu", "build"} <= set(LOCKS)
    assert all((PROJECT / "requirements" / f"{name}.txt").is_file() for name in LOCKS)
