"""How long a step takes: a predictor that is fitted to the engine's own steps while they run.

A step's time is modelled as linear in what it computes: tokens of prompts, generating requests, and the work of
attention, plus a fixed cost. Steps with prompts and without are fitted separately, since engines run them with
different code (CUDA graphs hold decoding only). The fit is recursive least squares of the *relative* error with
exponential forgetting (Haykin, *Adaptive Filter Theory*, chapter 9), by coordinate descent over non-negative
coefficients: more work never takes less time. A step that takes much longer or shorter than predicted (because the
machine was busy with something else) counts as one that differs by half, as in winsorized estimates.
"""

from dataclasses import dataclass
from typing import Final

FORGETTING: Final = 0.98
"""The decay of an observation's weight with each further one: half of the weight is on the last 35 steps."""
LEARNED_AFTER: Final = 10
"""Steps of a kind after which its predictions are used."""

STRETCH: Final = 2.0
"""Steps are predicted up to this multiple of the most prompt tokens in a recent step."""
_FIRST_REACH: Final = 256
"""The most tokens of prompts in a step before any with prompts was seen."""

SURPRISE: Final = 1.5
"""An observation counts as at most this many times longer or shorter than predicted."""
_SWEEPS: Final = 4
"""Passes of coordinate descent for each observation; each begins where the last one ended."""
_PRIOR: Final = 1e-6
"""Damps coefficients without observations."""
_FEATURES: Final = 4
_PROMPT_UNIT: Final = 256.0
_DECODE_UNIT: Final = 16.0
_ATTENTION_UNIT: Final = 65_536.0
"""These scale the features to similar magnitudes."""


@dataclass(slots=True)
class StepLoad:
    """What a step computes."""

    prompt_tokens: int = 0
    decodes: int = 0
    """Requests that generate."""
    attention: float = 0.0
    """The sum over tokens of the number of tokens before each."""

    def add_prompt(self, tokens: int, computed: int) -> None:
        """Add tokens of a prompt that has ``computed`` tokens computed already."""
        self.prompt_tokens += tokens
        self.attention += tokens * (computed + tokens / 2)

    def add_decode(self, tokens: int, computed: int) -> None:
        """Add a generating request that computes ``tokens`` tokens at once: more than one if it speculates."""
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
    """The steps of one kind.

    Args:
        has_prompts: whether these are steps with prompts.
    """

    def __init__(self, *, has_prompts: bool) -> None:
        # If all steps are alike, nothing shows the cost of each feature: the first feature explains them.
        # Under a flood all steps are full of prompt tokens, and a step with fewer would be shorter.
        self._order = (1, 2, 3, 0) if has_prompts else (0, 1, 2, 3)
        self.steps = 0
        self.coefficients = [0.0] * _FEATURES
        """Seconds for each feature's unit."""
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
    """Predicts how long steps take, and counts how well."""

    def __init__(self) -> None:
        self._fits = {kind: _Fit(has_prompts=kind) for kind in (False, True)}
        """By whether a step has prompts."""
        self.steps = 0
        """The number of steps that were observed and predicted."""
        self.actual_seconds = 0.0
        self.predicted_seconds = 0.0
        self.error_seconds = 0.0
        """The total error of predictions, too short or too long."""
        self._largest = 0.0, 0.0
        """Tokens of prompts in the largest recent step, and its seconds."""

    def knows(self, *, has_prompts: bool) -> bool:
        """Whether enough steps of a kind were seen."""
        return self._fits[has_prompts].steps >= LEARNED_AFTER

    def predict(self, load: StepLoad) -> float | None:
        """Returns the seconds that a step takes; None if too few steps of its kind were seen."""
        return self._fits[load.has_prompts].seconds(load.features) if self.knows(has_prompts=load.has_prompts) else None

    @property
    def is_known(self) -> bool:
        """Whether enough steps of any kind were seen to estimate all of them."""
        return any(self.knows(has_prompts=kind) for kind in self._fits)

    def estimate(self, load: StepLoad) -> float:
        """Returns the seconds that a step takes, by steps of the other kind if too few of its own were seen.

        Under a steady load of prompts an engine makes no step without any, and some engines see no prompts for long.

        Args:
            load: what the step computes.
        """
        kind = self._known_kind(has_prompts=load.has_prompts)
        if load.has_prompts and not kind:
            # The cost of a prompt token is unknown: steps without prompts estimate the rest.
            load = StepLoad(0, load.decodes, load.attention)
        return self._fits[kind].seconds(load.features)

    def _known_kind(self, *, has_prompts: bool) -> bool:
        """Returns the kind of steps to estimate by: whether they have prompts."""
        return has_prompts if self.knows(has_prompts=has_prompts) else not has_prompts

    def reach(self, bound: float) -> int:
        """Returns the prompt tokens that a step may try within ``bound`` seconds, judging by the steps seen.

        Small steps say little about large ones: reading the model's weights hides the cost of some tokens. Beyond the
        largest recent step, a step's time is assumed to grow as fast as its tokens.
        """
        tokens, seconds = self._largest
        stretch = min(STRETCH, max(1.0, bound / seconds)) if seconds else STRETCH
        return max(_FIRST_REACH, int(stretch * tokens))

    @property
    def prompt_tokens_per_second(self) -> float | None:
        """Prompt tokens per second of the largest recent step; None: there was none."""
        tokens, seconds = self._largest
        return tokens / seconds if tokens and seconds else None

    def seconds_per_prompt_token(self, computed: float) -> float:
        """Returns the seconds that one more prompt token adds to a step with prompts, after ``computed`` tokens."""
        coefficients = self._fits[True].coefficients
        return coefficients[1] / _PROMPT_UNIT + coefficients[3] * computed / _ATTENTION_UNIT

    def seconds_per_decode(self, tokens: int, computed: int, *, has_prompts: bool) -> float:
        """Returns the seconds that one more generating request adds to a step.

        Args:
            tokens: that are computed for it at once.
            computed: tokens before these.
            has_prompts: the kind of step; the other kind is used if too few of it were seen.
        """
        coefficients = self._fits[self._known_kind(has_prompts=has_prompts)].coefficients
        return coefficients[2] / _DECODE_UNIT + coefficients[3] * tokens * computed / _ATTENTION_UNIT

    def observe(self, load: StepLoad, seconds: float) -> None:
        """Learn from a step; a step that takes no time is ignored."""
        if seconds <= 0.0:
            return
        predicted = self.predict(load)
        if predicted is not None:
            self.steps += 1
            self.actual_seconds += seconds
            self.predicted_seconds += predicted
            self.error_seconds += abs(predicted - seconds)
        # The time of a load larger than all recent ones can't be predicted.
        tokens, longest = self._largest
        is_larger = load.prompt_tokens > tokens
        self._fits[load.has_prompts].observe(load.features, seconds, is_larger=is_larger)
        if is_larger:
            self._largest = float(load.prompt_tokens), seconds
        elif load.has_prompts:
            self._largest = tokens * FORGETTING, longest * FORGETTING
