"""An operator's /metrics at one moment."""

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


class Scrape:
    def __init__(self, text: str) -> None:
        self.text = text
        self.families: list[Metric] = list(text_string_to_metric_families(text))

    def samples(self, name: str = "", **labels: str) -> list[Sample]:
        """Samples of this name, or of any, that have at least these labels."""
        return [
            sample
            for family in self.families
            for sample in family.samples
            if name in ("", sample.name) and labels.items() <= sample.labels.items()
        ]

    def value(self, name: str, **labels: str) -> float | None:
        """The value of the only matching sample; None if there is none."""
        found = self.samples(name, **labels)
        assert len(found) < 2, found
        return found[0].value if found else None

    def counts(self, name: str, label: str, **labels: str) -> dict[str, int]:
        """Values other than zero, by one label."""
        return {sample.labels[label]: int(sample.value) for sample in self.samples(name, **labels) if sample.value != 0}
