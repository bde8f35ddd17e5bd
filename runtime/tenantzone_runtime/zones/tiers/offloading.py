"""Which parts of a request are stored in the tiers below an engine's blocks."""

from tenantzone_runtime.zones.model.zone import ZoneSpec


def offloads_nothing(spec: ZoneSpec) -> bool:
    """Whether tiers store nothing of a zone's requests, and drop what they have stored before."""
    return spec.retention.no_store or spec.offload == "Never"


def tokens_to_offload(spec: ZoneSpec, prompt_tokens: int, computed_tokens: int) -> int:
    """Returns how many of a request's tokens, from its beginning, may be stored in tiers.

    Args:
        spec: spec of the request's zone.
        prompt_tokens: number of the request's prompt tokens.
        computed_tokens: number of prompt and generated tokens whose keys and values are computed.
    """
    if offloads_nothing(spec):
        return 0
    return min(prompt_tokens, computed_tokens) if spec.offload == "Prompt" else computed_tokens
