"""Images that are computed in one step, as their tokens attend to each other (``--disable-chunked-mm-input``).

vLLM turns that on by itself for models such as Gemma 3. It ends a chunk of a prompt before an image that does not fit
into the step, and then asks for a share of the step, which may be less.
"""

from vllm.v1.request import Request


def up_to_image(request: Request, computed_tokens: int, tokens: int, ahead: int) -> int:
    """How many of the next tokens of a prompt can be computed such that they end in no image.

    Args:
        request: whose prompt.
        computed_tokens: of it.
        tokens: that are to be computed, at the most.
        ahead: how many tokens behind those that are computed a model that drafts looks at.
    """
    end = computed_tokens + tokens
    for feature in request.mm_features:
        place = feature.mm_position
        if computed_tokens <= place.offset < end < place.offset + place.length:
            return int(max(0, place.offset - ahead - computed_tokens))
    return tokens


def through_image(request: Request, computed_tokens: int, ahead: int) -> int:
    """The fewest tokens of a prompt that can be computed next: the image that comes now, or 1."""
    for feature in request.mm_features:
        place = feature.mm_position
        if place.offset - ahead <= computed_tokens <= place.offset:
            return int(place.offset + place.length - computed_tokens)
    return 1
