"""The states of a zone, Active, Idle and Evicted, and how requests and time change them.

Active: the zone has a waiting or running request. Idle: it has none; after its idle window the zone is *quiet* and
lends. From then on its cached blocks may be evicted in steps, and the rest at ``evict_after_seconds``. Evicted: all
blocks of an idle zone are gone. Its id and its tenant's binding stay, and its next request makes it active at once. A
zone that was registered for a tenant without a TenantZone is eventually forgotten; all other zones stay.
"""

from itertools import islice

from tenantzone_contract.reports.words import ZoneState
from tenantzone_contract.zone_config.share import percentage
from tenantzone_runtime.zones.audit.events import Change
from tenantzone_runtime.zones.blocks.ledger import Ledger
from tenantzone_runtime.zones.model.zone import Zone

_CHANGES: dict[ZoneState, Change] = {"Active": "active", "Idle": "idle", "Evicted": "evicted"}


def request_arrived(ledger: Ledger, zone: Zone) -> None:
    """Count a request that was bound to the zone, and make the zone active."""
    zone.requests += 1
    zone.last_active = ledger.now
    zone.quiet = False
    _enter(ledger, zone, "Active")
    ledger.totals.was_active(zone)


def request_finished(ledger: Ledger, zone: Zone) -> None:
    """Note that a request of the zone has ended, for whatever reason."""
    assert zone.requests > 0, f"zone {zone.spec.tenant}: more requests ended than began"
    zone.requests -= 1
    zone.last_active = ledger.now
    if zone.requests == 0:
        _enter(ledger, zone, "Idle")
    ledger.totals.was_active(zone)


def lend_what_is_unused(ledger: Ledger) -> None:
    """Let each zone that uses no blocks lend as if it were quiet, because no waiting request is admitted now.

    A zone stops lending when one of its requests can be admitted again, or a new request arrives.
    """
    for zone in ledger.zones.values():
        if zone.in_use == 0:
            _become(ledger, zone, quiet=True)


def is_served(ledger: Ledger, zone: Zone) -> None:
    """End the early lending of a zone, because one of its waiting requests can be admitted."""
    _become(ledger, zone, quiet=False)


def blocks_evicted(ledger: Ledger, zone: Zone) -> None:
    """Note that some of the zone's cached blocks were evicted."""
    if zone.state == "Idle" and zone.held == 0 and not zone.leaving:
        _enter(ledger, zone, "Evicted")


def advance(ledger: Ledger, zone: Zone, at_once: int) -> list[int]:
    """Advance the zone's timers; returns the blocks that were evicted because it is idle, at most ``at_once``."""
    if zone.requests > 0:
        return []
    # Compare points in time, as timers do, because floating-point differences and sums are rounded differently.
    _become(ledger, zone, quiet=zone.last_active + zone.spec.idle.after_seconds <= ledger.now)
    kept = _kept(ledger, zone)
    if kept is None:
        return []
    blocks = ledger.evict(zone, min(at_once, max(0, len(zone.cached) - kept)), "idle")
    blocks_evicted(ledger, zone)
    return blocks


def _kept(ledger: Ledger, zone: Zone) -> int | None:
    """Returns the number of cached blocks that a zone may keep after its time without requests; None means all."""
    idle = zone.spec.idle
    if _has_passed(ledger, zone, idle.evict_after_seconds) or is_forgotten(ledger, zone):
        return 0
    steps = sum(_has_passed(ledger, zone, time) for time in idle.releases)
    if idle.release is None or steps == 0:
        return None
    # The steps define a level and not amounts to evict. So evictions for other zones count, and late steps catch up.
    return zone.cached_when_quiet * max(0, 100 - steps * percentage(idle.release.share)) // 100


def is_forgotten(ledger: Ledger, zone: Zone) -> bool:
    """Whether the zone was registered for a tenant, and has been idle long enough to be removed."""
    if not zone.spec.auto_registered or zone.requests > 0:
        return False
    return _has_passed(ledger, zone, zone.spec.idle.forget_after_seconds)


def deadline(zone: Zone, after: float) -> float | None:
    """Returns the next time after ``after`` at which a timer changes something for the zone; None if there is none."""
    if zone.requests > 0:
        return None
    idle = zone.spec.idle
    forget_after = idle.forget_after_seconds if zone.spec.auto_registered else None
    since = _silent_since(zone)
    moments = [zone.last_active + idle.after_seconds]
    moments += [since + time for time in (idle.evict_after_seconds, forget_after) if time is not None]
    coming = [moment for moment in moments if moment > after]
    # There may be a hundred release steps, but they are in order, so the first one after ``after`` is enough.
    coming += islice((moment for time in idle.releases if (moment := since + time) > after), 1)
    return min(coming, default=None)


def _silent_since(zone: Zone) -> float:
    """Returns the time at which the zone's last request ended, or the zone was created if it never had a request.

    A zone that never had a request is quiet from the start.
    """
    return max(zone.last_active, zone.born)


def _has_passed(ledger: Ledger, zone: Zone, seconds: float | None) -> bool:
    return seconds is not None and _silent_since(zone) + seconds <= ledger.now


def _become(ledger: Ledger, zone: Zone, *, quiet: bool) -> None:
    if zone.quiet != quiet:
        zone.quiet = quiet
        zone.cached_when_quiet = len(zone.cached)
        ledger.totals.reckon(zone)


def _enter(ledger: Ledger, zone: Zone, state: ZoneState) -> None:
    if zone.state != state:
        zone.state = state
        if zone.name_in_journal is not None:
            ledger.trail.state(zone.spec.tenant, _CHANGES[state])
