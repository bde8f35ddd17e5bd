"""An engine's disk tier that stops in one phase of a write, a load or a removal, and waits to be killed.

python -m tests.disk.killed FOLDER PHASE
"""

import os
import sys
import time

from tests.disk.disks import CHUNK, Disk, FaultyDisk

WHOLE, CUT_SHORT = b"\x01" * 36, b"\x02" * 36


class DiskThatStops(FaultyDisk):
    """Files that can be used up to a phase, and no further."""

    phase = ""

    def write(self, path, content):
        self._stop("before the write")
        if self.phase == "in the write":
            path.write_bytes(content[: len(content) // 2])
            self._stop("in the write")
        super().write(path, content)
        self._stop("before the rename")

    def rename(self, source, target):
        super().rename(source, target)
        self._stop("after the rename")

    def read(self, path, content):
        self._stop("before the read")
        read = super().read(path, content)
        self._stop("after the read")
        return read

    def remove(self, path):
        self._stop("before the removal")
        super().remove(path)
        if "objects" in path.parts:
            self._stop("after the removal")

    def _stop(self, phase):
        if phase == self.phase:
            print("ready", flush=True)
            time.sleep(600)


def main(folder, phase):
    tenants = Disk(folder, acme={})
    tenants.store("acme", WHOLE)
    tenants.files.__class__ = DiskThatStops
    tenants.files.phase = phase
    if "read" in phase:
        tenants.begin_load("acme", {WHOLE: bytearray(CHUNK)})
    elif "removal" in phase:
        catalog = tenants.tier._catalog
        catalog.forget(tenants.tier.tier.lose(tenants.zone("acme"), catalog._space_of.copy().popitem()[0]))
    else:
        tenants.begin_store("acme", CUT_SHORT)
    # Ends with the test if it is not killed.
    time.sleep(60)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
