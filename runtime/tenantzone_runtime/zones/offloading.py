"""Which parts of a request are stored in the tiers below an engine's blocks."""

from tenantzone_runtime.zones.zone import ZoneSpec


def offloads_nothing(spec: ZoneSpec) -> bool:
    """Whether tiers keep nothing of a zone's requests, nor have kept anything."""
    return spec.retention.no_store or spec.offload == "Never"


def tokens_to_offload(spec: ZoneSpec, prompt_tokens: int, computed_tokens: int) -> int:
    """How many of a request's tokens, from its beginning, may be stored in tiers.

    Args:
        spec: of the request's zone.
        prompt_tokens: of the request.
        computed_tokens: tokens whose keys and values exist, of the prompt and generated.
    """
    if offloads_nothing(spec):
        return 0
    return min(prompt_tokens, computed_tokens) if spec.offload == "Prompt" else computed_tokens
