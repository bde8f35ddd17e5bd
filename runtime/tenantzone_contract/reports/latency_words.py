"""Texts for the machine-readable reasons that an engine reports for the state of a latency target."""

from collections.abc import Mapping
from typing import Final

LATENCY_WORDS: Final[Mapping[str, str]] = {
    "Met": "met",
    "NoTraffic": "nothing was served in the last minute",
    "Warming": "missed: the engine has not made enough steps to predict one",
    "OwnLoad": "missed: the zone's own requests make steps longer than that; lower spec.seats.limit, raise the target, "
    "or add engines",
    "OwnPrompts": "missed: the zone's own prompts make its steps longer than that, whatever other zones do; raise the "
    "target, send shorter prompts or fewer at a time, or add engines",
    "ModelTooSlow": "missed: one request alone takes longer; raise the target, or use a faster GPU or model",
    "Neighbours": "missed: other zones were computed in the same steps; the engine holds them back as far as it "
    "predicts steps rightly",
    "Blocks": "missed: requests waited for blocks; raise spec.reserved, or spec.limit if all of that is in use",
    "Seats": "missed: requests waited for a seat; raise spec.seats",
}
"""For each reason, the target's state, its cause and a remedy. A newer engine may report unknown reasons."""
