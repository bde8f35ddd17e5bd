"""The promises of a manager, checked from outside, without knowledge of how it keeps them.

Writers, readers and clocks are the tests' own, and files are real, so what is served can be compared with what was
written, and existing files with the use that the manager reports.
"""

from dataclasses import dataclass, field
from pathlib import Path

from tenantzone_contract.cache.cache_names import written_as
from tenantzone_manager.reads.reading import LocationPlace
from tests.manager.playing import Clock, path_of, read_bytes, write_bytes


@dataclass(slots=True)
class Write:
    """A write that has begun and is not finished yet."""

    instance: str
    write_id: str
    locations: dict[bytes, LocationPlace]
    """By key."""
    deadline: float
    """The time after which its writer writes nothing more."""


@dataclass(slots=True)
class Lease:
    """A location that a reader was given, and until when it can be read."""

    location: LocationPlace
    content: bytes
    until: float


@dataclass(slots=True)
class Naive:
    """What is known from outside."""

    clock: Clock
    lease: float
    writes: list[Write] = field(default_factory=list)
    finished: dict[tuple[str, bytes], set[str]] = field(default_factory=dict)
    """Ids of locations that were reported as written, by instance and key."""
    leases: list[Lease] = field(default_factory=list)

    def begun(self, instance: str, write_id: str, locations: dict[bytes, LocationPlace], deadline: float) -> None:
        """A write has begun; its writer writes all of it at once, and may never say so."""
        others = [write for write in self.writes if write.deadline > self.clock.now]
        places = [path_of(location)[:2] for write in others for location in write.locations.values()]
        for key, location in locations.items():
            assert path_of(location)[:2] not in places, "two writers were sent to one place"
            write_bytes(location, content(instance, key, location.id))
        if locations:
            self.writes.append(Write(instance, write_id, locations, deadline))

    def finishes(self, write: Write, written: list[bytes]) -> None:
        """The writer is about to report these keys as written."""
        for key in written:
            self.finished.setdefault((write.instance, key), set()).add(write.locations[key].id)

    def served(self, instance: str, key: bytes, location: LocationPlace) -> None:
        """A reader was given a location."""
        written = written_as(location.id)
        assert written in self.finished.get((instance, key), ()), "served before it was finished"
        assert f"/{instance}/" in str(path_of(location)[0]) or path_of(location)[0].parent.name.isdecimal()
        # A copy has what its writer wrote, and opens as that.
        lease = Lease(location, content(instance, key, written), self.clock.now + self.lease)
        assert read_bytes(location) == lease.content
        self.leases.append(lease)

    def check_leases(self) -> None:
        """Each location that was given out can be read until its lease is over."""
        self.leases = [lease for lease in self.leases if lease.until >= self.clock.now]
        for lease in self.leases:
            assert read_bytes(lease.location) == lease.content


def content(instance: str, key: bytes, location_id: str) -> bytes:
    return f"{instance} {key.hex()} {location_id}".encode()


def objects(root: Path) -> list[Path]:
    """Files of parts, wherever the storages are."""
    return [path for path in root.glob("*/objects/**/*") if path.is_file()]
