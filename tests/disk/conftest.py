import pytest

from tests.disk.disks import Disk


@pytest.fixture
def disk(tmp_path):
    disks = []

    def make(**options):
        disks.append(Disk(tmp_path / "tier", **options))
        return disks[-1]

    yield make
    for made in disks:
        made.stop()
