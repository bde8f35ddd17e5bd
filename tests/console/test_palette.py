"""The page's colours, by computation: text is readable, and zones are distinguishable with any colour vision."""

from itertools import combinations

import pytest

from tests.console.colours import VISIONS, Scheme, contrast, difference, linear, variables

OKABE_ITO = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7")
"""*Color Universal Design*, 2008: the standard for distinguishable colours."""
TEXTS = ("ink", "ink-quiet", "well", "bad", "pending")
GROUNDS = ("page", "surface", "raised")

schemes = pytest.mark.parametrize("scheme", ["light", "dark"])


def closest(colours, vision):
    """The distance of the two most similar colours, and which they are."""
    return min((difference(one, other, vision), names) for (one, other), names in pairs(colours))


def pairs(colours):
    return (((colours[one], colours[other]), (one, other)) for one, other in combinations(sorted(colours), 2))


def zone_colours(scheme: Scheme):
    return {name: colour for name, colour in variables(scheme).items() if name.startswith(("zone-", "no-zone"))}


@schemes
@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("text", TEXTS)
def test_text_has_the_contrast_that_wcag_asks_for(scheme, text, ground):
    colours = variables(scheme)
    assert contrast(colours[text], colours[ground]) >= 4.5


@schemes
def test_blocks_and_the_focus_stand_out_from_what_is_behind_them(scheme):
    colours = variables(scheme)
    for name, colour in {**zone_colours(scheme), "focus": colours["focus"]}.items():
        assert contrast(colour, colours["surface"]) >= 3, name


@schemes
@pytest.mark.parametrize("vision", VISIONS)
def test_zones_are_distinguished_as_well_as_with_the_palette_of_okabe_and_ito(scheme, vision):
    reference = min(closest({text: linear(text) for text in OKABE_ITO}, each)[0] for each in VISIONS.values())
    least, alike = closest(zone_colours(scheme), VISIONS[vision])
    assert least >= reference, alike


def test_both_schemes_have_every_colour():
    light, dark = variables("light"), variables("dark")
    assert light.keys() == dark.keys()
    assert all(light[name] != dark[name] for name in light)
