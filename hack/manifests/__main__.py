"""Writes the files of ``manifests/chart`` that are made from others."""

from hack.manifests.chart import CHART, files


def main() -> None:
    """Write the chart's generated files."""
    for path, text in files().items():
        file = CHART / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)


if __name__ == "__main__":
    main()
