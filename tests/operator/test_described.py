"""What ``kubectl describe zp`` shows for each way to identify tenants, from a real API server."""

import re
from functools import partial
from typing import Any

import pytest

from tests.operator.kube import eventually
from tests.operator.world import POOL, World

IDENTITIES: dict[str, tuple[dict[str, Any], str, str]] = {
    "apiKeys": ({}, "API Keys", "APIKeys: keys that the pods mount"),
    "trustedHeader": (
        {"name": "x-llm-d-inference-fairness-id", "proof": {"secretHeader": {"name": "x-tenantzone-gateway"}}},
        "Trusted Header",
        "TrustedHeader: x-llm-d-inference-fairness-id, proved by the secret in x-tenantzone-gateway",
    ),
    "jwt": (
        {"issuer": "https://login.example.com", "audiences": ["models"]},
        "Jwt",
        "JWT: tokens of https://login.example.com",
    ),
}
"""Each with its fields, kubectl's name for it, and the operator's words about it."""


def described(world: World) -> str:
    text: str = world.kubectl("describe", "zp", POOL).stdout
    return text


def condition(text: str, kind: str) -> dict[str, str]:
    """The condition of a described object, by kubectl's names for its fields."""
    blocks = [
        dict(re.findall(r"^    ([A-Z][A-Za-z ]+):\s+(.*)$", block, re.MULTILINE))
        for block in text.split("    Last Transition Time:")[1:]
    ]
    (found,) = [block for block in blocks if block["Type"] == kind]
    return found


@pytest.mark.controlplane
def test_a_described_pool_says_for_each_identity_whether_it_is_enforced(world: World) -> None:
    def says(status: str, reason: str, message: str) -> bool:
        found = condition(described(world), "IdentityEnforced")
        seen = (found["Status"], found["Reason"], found["Message"])
        assert seen == (status, reason, message)
        return True

    world.add_pool()
    world.add_zone("acme", reserved="10%")
    engine = world.add_engine()
    world.await_ready("acme")
    for name, (fields, called, words) in IDENTITIES.items():
        others = dict.fromkeys(IDENTITIES)
        world.kube.merge(world.pool_path, {"spec": {"identity": {**others, name: fields}}})
        eventually(partial(says, "True", "Acknowledged", f"{words}; acknowledged by 1 engine"))
        text = described(world)
        print(f"$ kubectl describe zp {POOL}    # {name}\n{text}")
        assert f"  Identity:\n    {called}:\n" in text
        assert "NotEnforced" not in text
    engine.identity_problem = "jwks.json is not in the folder"
    words = IDENTITIES["jwt"][2]
    problem = f"{words}; engine-0 serves no request: jwks.json is not in the folder"
    eventually(partial(says, "False", "IdentityUnusable", problem))
