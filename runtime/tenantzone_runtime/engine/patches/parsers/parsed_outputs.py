"""Merges outputs of a request whose parsers have used up their CPU time.

Upstream change that would make this module unnecessary: vLLM awaits its parsers and runs them in an executor.
"""

from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams

from tenantzone_runtime.frontend.request_context import current_context


class ParsedOutputs:
    """Merges outputs of one request while its parsers have no CPU time left, so that they are called less often.

    Args:
        params: the request's parameters.
    """

    def __init__(self, params: SamplingParams) -> None:
        self._is_stream = params.output_kind is RequestOutputKind.DELTA
        self._kept: RequestOutput | None = None

    def add(self, output: RequestOutput) -> RequestOutput | None:
        """Returns the output that the parsers should parse next, and counts its tokens.

        Args:
            output: the engine's next output.

        Returns:
            The output, merged with the earlier output that was kept back, if any. None if this output is kept back.
        """
        context = current_context()
        if context is None:
            return output
        if self._kept is not None:
            # vLLM merges outputs of a stream in the same way while the client does not read them.
            self._kept.add(output, aggregate=True)
            output, self._kept = self._kept, None
        tokens = _tokens_of(output)
        if self._is_stream and not output.finished and not context.parsing.has_time_for(tokens):
            self._kept = output
            return None
        context.parsing.begin_turn(tokens)
        return output


def _tokens_of(output: RequestOutput) -> int:
    return sum(len(completion.token_ids) for completion in output.outputs)
