"""What the command can't use or do is reported in one line, as early as possible."""

import re

import pytest

from tenantzone_replay.__main__ import main

REFUSED = [
    ("compare nowhere", "the file does not exist"),
    ("compare TRACE,rate=x", "rate= must be a number"),
    ("compare TRACE --model 70b --gpus 1", "raise --gpus"),
    ("compare TRACE --blocks x", "expected a whole number from 1 to"),
    ("compare TRACE --blocks 0", "expected a whole number from 1 to"),
    ("compare TRACE --tenants 20000", "at most 10,000 tenants"),
    ("compare TRACE --ttft nan", "expected a number of at least 0, got 'nan'"),
    ("compare TRACE --ttft -1", "expected a number of at least 0, got '-1'"),
    ("compare TRACE --tpot x", "expected a number of at least 0, got 'x'"),
    ("compare TRACE --step-tokens 20000000", "from 1 to 8,388,608"),
    ("compare TRACE --step-tokens 16", "--step-tokens 16 is less than --seats 256"),
    ("compare TRACE --policies infinite --capacities 50%", "choose other --policies"),
    ("compare TRACE --capacities nan", "expected a fraction above 0, such as 0.5 or 50%, got 'nan'"),
    ("compare TRACE --capacities inf", "expected a fraction above 0, such as 0.5 or 50%, got 'inf'"),
    ("compare TRACE --capacities 50% 1e9", "exceeds the maximum of 4,000,000"),
    ("compare TRACE --json HERE/nowhere/x", "there is no folder '.*nowhere'"),
    ("compare TRACE --html HERE/nowhere/x", "there is no folder '.*nowhere'"),
    ("compare TRACE --html HERE", "is a folder; give the path of a file"),
    ("compare TRACE --json HERE/LONG", "File name too long; choose another path"),
    ("compare TRACE --html HERE/LONG/x", "File name too long; choose another path"),
    ("compare TRACE --pictures HERE/LONG", "File name too long; choose another path"),
    ("advise TRACE --yaml HERE/LONG", "File name too long; choose another path"),
    ("compare TRACE --json HERE/x --pictures HERE/x", "--json and --pictures would write to the same path; give one"),
    ("compare TRACE --html HERE/x --pictures HERE/./x/y", "--html and --pictures would write to the same path"),
    ("compare TRACE --json HERE/x --html HERE/x", "--json and --html would write to the same path"),
    ("compare TRACE --pictures TRACE/x", "is a file; give the path of a folder"),
    ("compare TRACE --zones TRACE", "TRACE: "),
    (
        "compare TRACE --zones BINARY",
        "BINARY is not a text file; use the pool's config.json, or a file with TenantZones",
    ),
    ("compare TRACE --zones HERE/nowhere", "nowhere: No such file"),
    ("compare TRACE --zones HEAD", "the file config.jsonl.gz is missing"),
    ("compare TRACE --profile DEEP", "DEEP was not written by the command fit"),
    ("compare TRACE --tier-blocks 9999999", "from 1 to 4,000,000"),
    ("advise TRACE --blocks 3", "--blocks must be 4 or more"),
    ("advise TRACE --trials -7", "from 0 to"),
    ("advise TRACE --seed -1", "from 0 to"),
    ("advise TRACE --attain nan", "expected a fraction in"),
    ("advise TRACE --attain 101%", "expected a fraction in"),
    ("advise TRACE --tiers -1", "expected a number of at least 0"),
    ("advise TRACE --tiers inf", "expected a number of at least 0"),
    ("advise TRACE --tiers 0 1e9", "exceeds the maximum of 4,000,000"),
    ("advise TRACE --tier-price nan", "expected a number of at least 0"),
    ("advise TRACE --gpu-hour -3", "expected a number of at least 0"),
    (
        "advise TRACE,tenant=us --held-out TRACE,tenant=them",
        "has tenants that are not in the load for the advice: them",
    ),
    ("advise TRACE --held-out nowhere", "the file does not exist"),
    ("advise TRACE --yaml HERE/nowhere/x", "there is no folder"),
    ("advise TRACE --pool UPPER!", "expected the name of a ZonePool"),
    ("advise TRACE --zones CONFIG", "CONFIG: No such file or directory"),
    ("advise TRACE --tier-blocks 77", "unrecognized arguments: --tier-blocks"),
    ("rank TRACE --attain 200%", "expected a fraction in"),
    ("rank TRACE --attain nan", "expected a fraction in"),
    ("rank TRACE,tenant=a TRACE,tenant=a", "two services have the name a"),
    ("rank TRACE --zones CONFIG", "unrecognized arguments: --zones"),
    ("memory TRACE --pieces 0", "from 1 to"),
    ("memory TRACE --pieces 200000", "16,400,000 blocks, more than 4,000,000; lower --pieces"),
    ("memory TRACE --blocks 100", "unrecognized arguments: --blocks"),
    ("memory TRACE --ttft 1", "unrecognized arguments: --ttft"),
    ("memory TRACE --zones CONFIG", "unrecognized arguments: --zones"),
    ("isolation TRACE --counts 0", "from 1 to"),
    ("isolation TRACE --counts 1 1000000", "at most 10,000 tenants"),
    ("isolation TRACE --zones CONFIG", "unrecognized arguments: --zones"),
    ("fit http://127.0.0.1:1 --out HERE/x --at-once 0", "from 1 to"),
    ("fit http://127.0.0.1:1 --out HERE/x --gpus -1", "from 1 to"),
    ("fit http://127.0.0.1:1 --out HERE/x --blocks -5", "from 1 to"),
    ("fit http://127.0.0.1:1 --out HERE/x --block-tokens -1", "from 1 to"),
    ("fit http://127.0.0.1:1 --out HERE/x --cache-bytes-per-token -5", "from 1 to"),
    ("fit http://127.0.0.1:1 --out HERE/x --step-tokens 4", "from 64 to"),
    ("fit http://127.0.0.1:1 --out HERE/nowhere/x", "there is no folder"),
]


@pytest.mark.parametrize(("command", "says"), REFUSED, ids=[command for command, _ in REFUSED])
def test_what_can_not_be_used_is_said_in_one_line_before_anything_is_replayed(trace, tmp_path, capsys, command, says):
    head = '{"schemaVersion": 2, "generation": 1, "hash": "sha256:%s", "content": "config.jsonl.gz"}' % ("0" * 64)
    contents = {"BINARY": b"\x7fELF\xff\xfe", "HEAD": head.encode(), "DEEP": b"[" * 200_000}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    where = {"TRACE": trace, "HERE": tmp_path, "LONG": "x" * 300} | {name: tmp_path / name for name in contents}
    for name, path in where.items():
        command, says = command.replace(name, str(path)), says.replace(name, re.escape(str(path)))
    with pytest.raises(SystemExit) as end:
        main(command.split())
    printed = capsys.readouterr()
    # argparse prints its error below the usage.
    (line,) = printed.err.splitlines()[-1:] if end.value.code == 2 else str(end.value.code).splitlines()
    assert re.search(says, line)
    assert line.startswith("tenantzone-replay")
    assert not re.search("virtual seconds|worst tenant", printed.err)


def test_what_can_not_be_written_in_the_end_is_said(trace, capsys):
    arguments = ["compare", str(trace), "--blocks", "40", "--policies", "salted"]
    with pytest.raises(SystemExit, match="No space left on device"):
        main([*arguments, "--json", "/dev/full"])
