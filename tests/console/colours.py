"""How colours look with every kind of colour vision; and the page's colours."""

import math
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Literal

Colour = tuple[float, float, float]
"""Linear red, green and blue, from 0 to 1."""
Matrix = Sequence[Colour]
Scheme = Literal["light", "dark"]

STYLE = (files("tenantzone_operator.console") / "page" / "style.css").read_text()

VISIONS: dict[str, Matrix] = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
"""Machado, Oliveira and Fernandes, *A Physiologically-based Model for Simulation of Color Vision Deficiency*, 2009, at
full severity."""

_TO_CONES: Matrix = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
_TO_LAB: Matrix = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)


def variables(scheme: Scheme) -> dict[str, Colour]:
    """The page's colours, by the names of their CSS variables."""
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", part)) for part in STYLE.split("@media", 2)[:2])
    return {name: linear(text) for name, text in (light | (dark if scheme == "dark" else {})).items()}


def linear(text: str) -> Colour:
    """The colour given as ``#rrggbb``."""
    red, green, blue = (_linear(int(text[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return red, green, blue


def contrast(one: Colour, other: Colour) -> float:
    """The ratio defined by WCAG 2, from 1 to 21."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def difference(one: Colour, other: Colour, vision: Matrix) -> float:
    """The distance of two colours in OKLab (Ottosson, 2020), times 100. About 2 is just visible."""
    return 100 * math.dist(_lab(_times(vision, one)), _lab(_times(vision, other)))


def _linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def _luminance(colour: Colour) -> float:
    red, green, blue = colour
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _lab(colour: Colour) -> Colour:
    red, green, blue = (min(1.0, max(0.0, part)) for part in colour)
    one, two, three = (math.cbrt(part) for part in _times(_TO_CONES, (red, green, blue)))
    return _times(_TO_LAB, (one, two, three))


def _times(matrix: Matrix, colour: Colour) -> Colour:
    one, two, three = (sum(factor * part for factor, part in zip(row, colour, strict=True)) for row in matrix)
    return one, two, three
