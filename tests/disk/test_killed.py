"""An engine killed with SIGKILL in any phase leaves whole chunks, and after the next start nothing else."""

import subprocess
import sys

import pytest

from tests.disk.disks import Disk, content
from tests.disk.killed import CUT_SHORT, WHOLE

LEFT = {
    "before the write": {WHOLE},
    "in the write": {WHOLE},
    "before the rename": {WHOLE},
    "after the rename": {WHOLE, CUT_SHORT},
    "before the read": {WHOLE},
    "after the read": {WHOLE},
    "before the removal": {WHOLE},
    "after the removal": set(),
}
LEFTOVERS = {"in the write": 1, "before the rename": 1}


@pytest.mark.parametrize("phase", LEFT)
def test_what_is_there_after_a_kill(tmp_path, phase):
    command = [sys.executable, "-m", "tests.disk.killed", str(tmp_path / "tier"), phase]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        child.kill()
    tenants = Disk(tmp_path / "tier", acme={})
    try:
        assert tenants.tier.figures().leftovers == LEFTOVERS.get(phase, 0)
        assert set(tenants.paths()) == LEFT[phase]
        assert not list((tenants.root / "incoming").iterdir())
        assert tenants.load("acme", *LEFT[phase]) == {key: content(key) for key in LEFT[phase]}
        assert sorted(tenants.store("acme", WHOLE, CUT_SHORT)) == sorted({WHOLE, CUT_SHORT} - LEFT[phase])
    finally:
        tenants.stop()
