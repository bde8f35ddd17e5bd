"""Shows two refused zones: one that does not fit into its pool, and one with contradictory fields."""

from pathlib import Path

from hack.demo.console import chapter, say
from hack.demo.samples import SAMPLES
from hack.demo.stack import Stack
from hack.demo.story.claims import Claims
from hack.demo.story.view import show_zones
from hack.demo.workspace import show

_OVERCOMMIT = SAMPLES / "refused" / "overcommit.yaml"
_INVALID = SAMPLES / "refused" / "invalid.yaml"


def refuse_overcommit(stack: Stack, claims: Claims) -> None:
    """Show that a zone that requests more than is left is refused, and that earlier zones keep their blocks."""
    chapter("e. What can't be")
    _quote(_OVERCOMMIT)
    show(stack.cluster, "apply", "-f", str(_OVERCOMMIT))
    show(stack.cluster, "wait", "--for=condition=Accepted=False", "tenantzone/greedy", "--timeout=30s", check=False)
    show_zones(stack, "--output=wide")
    outcome = _accepted(stack, "greedy")
    claims.check(
        "e", "a zone that overcommits the pool is not accepted", outcome, held=outcome == "False PoolOvercommitted"
    )
    kept = _accepted(stack, "acme")
    claims.check("e", "who was there first keeps its reservation", f"acme: {kept}", held=kept.startswith("True"))
    show(stack.cluster, "delete", "tenantzone/greedy")


def refuse_invalid(stack: Stack, claims: Claims) -> None:
    """Show that the API server rejects a zone with contradictory fields."""
    say("")
    _quote(_INVALID)
    answer = show(stack.cluster, "apply", "-f", str(_INVALID), check=False)
    known = stack.cluster.kubectl("get", "tenantzone", "confused", "--ignore-not-found", "--output=name").stdout
    claims.check(
        "e",
        "a zone that contradicts itself is refused by the API server",
        "refused" if not known else "stored",
        held=not known and "limit" in answer,
    )


def _quote(manifest: Path) -> None:
    say("\n".join(f"  | {line}" for line in manifest.read_text().splitlines()))


def _accepted(stack: Stack, zone: str) -> str:
    """Returns status and reason of the zone's Accepted condition."""
    condition = '.status.conditions[?(@.type=="Accepted")]'
    output = f"--output=jsonpath={{{condition}.status}} {{{condition}.reason}}"
    return stack.cluster.kubectl("get", "tenantzone", zone, output).stdout
