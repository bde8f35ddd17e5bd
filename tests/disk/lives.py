"""Events in any life of a disk: zones come, go and are purged, files are damaged, system calls fail."""

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.disk.disks import files_in
from tests.zones.core import declare

TENANTS = ("acme", "gold", "late")
CALLS = ("write", "rename", "read", "remove", "files")
ERRORS = (errno.ENOSPC, errno.EROFS, errno.EIO, errno.ENOENT)

tenants = st.sampled_from(TENANTS)


class Lives(RuleBasedStateMachine):
    """A life begins with a disk, on which all tenants are declared."""

    terms: ClassVar = {}
    """Terms of all zones."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.disk = None
        self.declared = {tenant: declare(tenant, **self.terms) for tenant in TENANTS}
        self.purges = 0

    def forgotten(self, tenant):
        """The tenant's stored chunks are no longer found."""

    @rule(tenant=tenants)
    def purge(self, tenant):
        if tenant in self.declared:
            self.purges += 1
            self.declared[tenant] = declare(tenant, purge=f"p{self.purges}", **self.terms)
            self.disk.declare(*self.declared.values(), opening=False)
            self.forgotten(tenant)

    @rule(tenant=tenants)
    def come_or_go(self, tenant):
        if tenant in self.declared:
            del self.declared[tenant]
            self.end_requests(tenant)
            self.forgotten(tenant)
        else:
            self.declared[tenant] = declare(tenant, **self.terms)
        self.disk.declare(*self.declared.values(), opening=False)

    @rule(call=st.sampled_from(CALLS), number=st.sampled_from(ERRORS))
    def fail(self, call, number):
        self.disk.files.errors[call] = OSError(number, "injected")

    @rule()
    def recover(self):
        self.disk.files.errors.clear()
        for breaker in (self.disk.tier.write_breaker, self.disk.tier.read_breaker, self.disk.tier.removal_breaker):
            breaker.succeeded()

    @rule(chosen=st.integers(0), harm=st.sampled_from(["cut", "changed", "removed", "swapped"]))
    def harm(self, chosen, harm):
        paths = sorted(self.files())
        if not paths:
            return
        # Chunks that are about to be removed may go meanwhile.
        with suppress(FileNotFoundError):
            harmed(harm, paths[chosen % len(paths)], paths[(chosen + 1) % len(paths)])

    def files(self):
        return files_in(self.folder / "tier" / "objects")

    def end_requests(self, *tenants):
        """Ends the requests that keep the tenants' zones from being removed."""
        for tenant in tenants:
            zone = self.disk.tier.tier.ledger.zones.get(tenant)
            while zone is not None and zone.requests:
                self.disk.tier.tier.request_finished(zone, 0.0)


def harmed(harm, path, other):
    """Does to a chunk's file what others than the tier may do to it."""
    written = path.read_bytes()
    if harm == "removed":
        path.unlink()
    elif harm == "cut":
        os.truncate(path, len(written) - 1)
    elif harm == "changed":
        path.write_bytes(written[:-1] + bytes([written[-1] ^ 1]))
    else:
        path.write_bytes(other.read_bytes())
        other.write_bytes(written)
