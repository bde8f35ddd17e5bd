"""A predictor for the duration of a step, which is fitted online to the engine's own steps.

The duration of a step is modelled as a fixed cost plus a linear function of its load: prompt tokens, generating
requests, and the work of attention. Steps with and without prompts are fitted separately, because engines run them with
different code (such as CUDA graphs only for decodes). The fit is recursive least squares of the *relative* error with
exponential forgetting (Haykin, *Adaptive Filter Theory*, chapter 9), by coordinate descent over non-negative
coefficients, so that more work never takes less time. The durations of steps that take much longer or shorter than
predicted (because the machine was busy with something else) are clipped, as in winsorized estimates.
"""

from dataclasses import dataclass
from typing import Final

FORGETTING: Final = 0.98
"""Factor by which each new observation multiplies the weight of older ones. The last 35 steps have half of the weight.
"""
LEARNED_AFTER: Final = 10
"""Number of observed steps of a kind after which predictions for this kind are used."""

STRETCH: Final = 2.0
"""A step may have up to this multiple of the prompt tokens of the largest recent step."""
_FIRST_REACH: Final = 256
"""Maximum number of prompt tokens in a step before any step with prompts was observed."""

SURPRISE: Final = 1.5
"""An observed duration is clipped to at most this many times longer or shorter than predicted."""
_SWEEPS: Final = 4
"""Number of passes of coordinate descent for each observation. They continue from the previous coefficients."""
_PRIOR: Final = 1e-6
"""Strength of the regularization, which keeps a coefficient near 0 as long as no observation determines it."""
_FEATURES: Final = 4
_PROMPT_UNIT: Final = 256.0
_DECODE_UNIT: Final = 16.0
_ATTENTION_UNIT: Final = 65_536.0
"""Units that scale the features to similar magnitudes."""


@dataclass(slots=True)
class StepLoad:
    """The load of a step: the work that it computes."""

    prompt_tokens: int = 0
    decodes: int = 0
    """Number of generating requests."""
    attention: float = 0.0
    """Work of attention: the sum, over all computed tokens, of the number of tokens before them."""

    def add_prompt(self, tokens: int, computed: int) -> None:
        """Add ``tokens`` tokens of a prompt, after ``computed`` tokens that are computed already."""
        self.prompt_tokens += tokens
        self.attention += tokens * (computed + tokens / 2)

    def add_decode(self, tokens: int, computed: int) -> None:
        """Add a generating request that computes ``tokens`` tokens at once: more than 1 with speculative decoding."""
        self.decodes += 1
        self.attention += tokens * computed

    @property
    def has_prompts(self) -> bool:
        return self.prompt_tokens > 0

    @property
    def features(self) -> tuple[float, ...]:
        return (
            1.0,
            self.prompt_tokens / _PROMPT_UNIT,
            self.decodes / _DECODE_UNIT,
            self.attention / _ATTENTION_UNIT,
        )


class _Fit:
    """The model of steps of one kind.

    Args:
        has_prompts: whether these are steps with prompts.
    """

    def __init__(self, *, has_prompts: bool) -> None:
        # If all steps are alike, the costs of features can't be separated, and the first feature of this order gets
        # most of the cost. For steps with prompts, the first feature must be the number of prompt tokens: a flood fills
        # all steps with prompt tokens, and a step with fewer of them would be shorter.
        self._order = (1, 2, 3, 0) if has_prompts else (0, 1, 2, 3)
        self.steps = 0
        self.coefficients = [0.0] * _FEATURES
        """Seconds per unit of each feature."""
        self._products = [[0.0] * _FEATURES for _ in range(_FEATURES)]
        self._targets = [0.0] * _FEATURES

    def seconds(self, features: tuple[float, ...]) -> float:
        return sum(each * unit for each, unit in zip(self.coefficients, features, strict=True))

    def observe(self, features: tuple[float, ...], seconds: float, *, is_larger: bool) -> None:
        if not is_larger and self.steps >= LEARNED_AFTER and (expected := self.seconds(features)) > 0:
            seconds = min(max(seconds, expected / SURPRISE), expected * SURPRISE)
        self.steps += 1
        relative = [each / seconds for each in features]
        for i, row in enumerate(self._products):
            for j in range(_FEATURES):
                row[j] = row[j] * FORGETTING + relative[i] * relative[j]
            self._targets[i] = self._targets[i] * FORGETTING + relative[i]
        self._solve()

    def _solve(self) -> None:
        coefficients = self.coefficients
        for _ in range(_SWEEPS):
            for i in self._order:
                row = self._products[i]
                scale = row[i] + _PRIOR * self._products[0][0]
                if scale > 0:
                    rest = sum(row[j] * coefficients[j] for j in range(_FEATURES)) - row[i] * coefficients[i]
                    coefficients[i] = max(0.0, (self._targets[i] - rest) / scale)


class StepTimes:
    """Predicts the duration of steps, and counts the errors of the predictions."""

    def __init__(self) -> None:
        self._fits = {kind: _Fit(has_prompts=kind) for kind in (False, True)}
        """The models, by whether a step has prompts."""
        self.steps = 0
        """Number of observed steps that had been predicted."""
        self.actual_seconds = 0.0
        self.predicted_seconds = 0.0
        self.error_seconds = 0.0
        """Sum of the absolute errors of predictions."""
        self._largest = 0.0, 0.0
        """Number of prompt tokens in the largest recent step, and its duration in seconds."""

    def knows(self, *, has_prompts: bool) -> bool:
        """Whether enough steps of a kind were observed to predict them."""
        return self._fits[has_prompts].steps >= LEARNED_AFTER

    def predict(self, load: StepLoad) -> float | None:
        """Returns the predicted seconds of a step; None if too few steps of its kind were observed."""
        return self._fits[load.has_prompts].seconds(load.features) if self.knows(has_prompts=load.has_prompts) else None

    @property
    def is_known(self) -> bool:
        """Whether enough steps of either kind were observed to estimate steps of both kinds."""
        return any(self.knows(has_prompts=kind) for kind in self._fits)

    def estimate(self, load: StepLoad) -> float:
        """Returns the estimated seconds of a step, from steps of the other kind if too few of its kind were observed.

        One kind may be missing, because a steady load can have prompts in all steps, or in none for a long time.

        Args:
            load: load of the step.
        """
        kind = self._known_kind(has_prompts=load.has_prompts)
        if load.has_prompts and not kind:
            # The cost of a prompt token is unknown, so estimate only the rest, from steps without prompts.
            load = StepLoad(0, load.decodes, load.attention)
        return self._fits[kind].seconds(load.features)

    def _known_kind(self, *, has_prompts: bool) -> bool:
        """Returns the kind of steps from which to estimate: the given one, or the other if too few were observed."""
        return has_prompts if self.knows(has_prompts=has_prompts) else not has_prompts

    def reach(self, bound: float) -> int:
        """Returns the maximum number of prompt tokens to put into a step that should take at most ``bound`` seconds.

        The durations of small steps do not show those of large ones, because the time to read the model's weights hides
        the cost of a few tokens. Beyond the largest recent step, the duration is assumed to be proportional to the
        number of tokens.
        """
        tokens, seconds = self._largest
        stretch = min(STRETCH, max(1.0, bound / seconds)) if seconds else STRETCH
        return max(_FIRST_REACH, int(stretch * tokens))

    @property
    def prompt_tokens_per_second(self) -> float | None:
        """Prompt tokens per second in the largest recent step; None if no step had prompts."""
        tokens, seconds = self._largest
        return tokens / seconds if tokens and seconds else None

    def seconds_per_prompt_token(self, computed: float) -> float:
        """Returns the seconds that a prompt token with ``computed`` tokens before it adds to a step with prompts."""
        coefficients = self._fits[True].coefficients
        return coefficients[1] / _PROMPT_UNIT + coefficients[3] * computed / _ATTENTION_UNIT

    def seconds_per_decode(self, tokens: int, computed: int, *, has_prompts: bool) -> float:
        """Returns the seconds that one more generating request adds to a step.

        Args:
            tokens: number of tokens that the step computes for the request.
            computed: number of tokens of the request that were computed before.
            has_prompts: whether the step has prompts. If too few such steps were observed, the other kind is used.
        """
        coefficients = self._fits[self._known_kind(has_prompts=has_prompts)].coefficients
        return coefficients[2] / _DECODE_UNIT + coefficients[3] * tokens * computed / _ATTENTION_UNIT

    def observe(self, load: StepLoad, seconds: float) -> None:
        """Learn from a step that took ``seconds``. A step that took no time is ignored."""
        if seconds <= 0.0:
            return
        predicted = self.predict(load)
        if predicted is not None:
            self.steps += 1
            self.actual_seconds += seconds
            self.predicted_seconds += predicted
            self.error_seconds += abs(predicted - seconds)
        # The duration of a step that is larger than all recent ones can't be predicted, so it is not clipped.
        tokens, longest = self._largest
        is_larger = load.prompt_tokens > tokens
        self._fits[load.has_prompts].observe(load.features, seconds, is_larger=is_larger)
        if is_larger:
            self._largest = float(load.prompt_tokens), seconds
        elif load.has_prompts:
            self._largest = tokens * FORGETTING, longest * FORGETTING
