"""Which zones are advised, and that they can be applied."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tenantzone_contract.zone_config.specs import zone_config
from tenantzone_contract.zone_config.zone_terms import Lending
from tenantzone_replay.halving import halved
from tenantzone_replay.results.advice import (
    as_yaml,
    beside_present,
    beside_stock,
    choose,
    front_table,
    named_as,
    return_table,
)
from tenantzone_replay.results.held_out import Trial, trials_table, try_on
from tenantzone_replay.search import Candidate, narrowed, pareto, search, shares_of, stock
from tenantzone_replay.simulation.measures import Target, TenantMeasures
from tenantzone_replay.simulation.policies import changed, equal_zones, zone_names
from tests.replay.loads import BLOCK_TOKENS, asked, flood_next_to_a_quiet_tenant, setting
from tests.replay.test_replay import results

CRD = Path(__file__).parents[2] / "crds/tenantzones.yaml"
LOAD = flood_next_to_a_quiet_tenant(rounds=6)


@pytest.fixture(scope="module")
def measured():
    (result,) = results(LOAD, "zones", blocks=200)
    return result


def candidate(measured, blocks, worst, *, is_equal=False, tenants=("quiet", "F"), tier_blocks=0):
    zones = tuple(changed(zone, reserved="40%", lending=Lending(lendable=0)) for zone in equal_zones(tenants, 200))
    return Candidate(blocks, zones, False, tier_blocks, blocks + 0.1 * tier_blocks, worst, measured, is_equal)


def why(text):
    """The text before the zones, as one line."""
    return " ".join(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))


def test_the_front_has_nothing_that_costs_more_and_brings_no_more(measured):
    tried = [candidate(measured, *each) for each in ((100, 0.5), (200, 0.4), (150, 0.9), (150, 0.7), (300, 0.9))]
    assert [(each.blocks, each.worst) for each in pareto(tried)] == [(100, 0.5), (150, 0.9)]
    assert len(front_table(tried, setting(LOAD, blocks=300), measured).splitlines()) == 4


def test_the_front_has_a_row_of_stock(measured):
    *_, row = front_table([candidate(measured, 150, 0.9)], setting(LOAD, blocks=300), measured).splitlines()
    assert row.split()[0] == f"{measured.blocks:,}"
    assert f"{measured.worst:.1%}" in row
    assert row.endswith("stock vLLM")


@pytest.mark.parametrize(
    ("advised", "wanted", "beats"),
    [(0.9, 0.9, True), (0.9, 0.95, True), (0.8, 0.95, False), (0.9, 0.8, False), (0.7, 0.95, False)],
    ids=["it reaches the target", "it comes closer", "as close", "both reach the target", "stock comes closer"],
)
def test_advice_that_does_not_beat_stock_says_so(measured, advised, wanted, beats):
    stock = replace(measured, tenants={"a": TenantMeasures(requests=10, attained=8)})
    reported = beside_stock(candidate(measured, 150, advised), stock, wanted)
    assert "has 80.0% in time" in reported
    assert ("do not beat it" not in reported) is beats


def test_the_front_has_a_row_of_the_present_zones_before_that_of_stock(measured):
    before = replace(measured, blocks=300)
    *_, row, last = front_table(
        [candidate(measured, 150, 0.9)], setting(LOAD, blocks=300), measured, before
    ).splitlines()
    assert row.split()[0] == "300"
    assert row.endswith("present zones")
    assert last.endswith("stock vLLM")


@pytest.mark.parametrize(
    ("attained", "blocks", "beats"),
    [(8, 200, True), (10, 200, True), (10, 150, False), (9, 100, False)],
    ids=["it comes closer", "it needs less memory", "as good with as much", "as good with less"],
)
def test_advice_that_does_not_beat_the_present_zones_says_so(measured, attained, blocks, beats):
    before = replace(measured, blocks=blocks, tenants={"a": TenantMeasures(requests=10, attained=attained)})
    text = beside_present(candidate(measured, 150, 0.9), before, 0.9)
    assert f"have {attained}0.0% in time with {blocks} blocks" in text
    assert ("does not beat them" not in text) is beats


def test_what_is_advised_has_the_names_of_the_present_zones(measured):
    now = [changed(zone, name=f"zone-of-{zone.tenant}".lower()) for zone in equal_zones(("F", "quiet", "other"), 200)]
    advised = named_as(candidate(measured, 150, 0.9), now)
    assert [(zone.name, zone.tenant) for zone in advised.zones] == [("zone-of-quiet", "quiet"), ("zone-of-f", "F")]
    assert advised.zones[0].reserved == "40%"


def test_a_search_runs_next_to_stock_with_the_same_memory(long_prompts_next_to_short_ones):
    found = stock(long_prompts_next_to_short_ones, 80)
    assert (found.policy, found.blocks) == ("stock", 80)
    assert found.worst == min(each.attainment for each in found.tenants.values())


def test_the_least_memory_that_is_enough_is_chosen_and_else_what_comes_closest(measured):
    tried = [candidate(measured, *each) for each in ((100, 0.5), (150, 0.9), (300, 0.95))]
    assert choose(tried, 0.8).blocks == 150
    assert choose(tried, 0.99).blocks == 300


def test_what_is_advised_can_be_applied_and_says_why(measured):
    tried = [candidate(measured, 150, 0.9), candidate(measured, 200, 0.9, is_equal=True)]
    text = as_yaml(tried[0], tried, setting(LOAD, blocks=200), 0.9, "demo", measured)
    assert "Equal shares needed 200 blocks for the same, which is 25% saved" in why(text)
    objects = [each for each in yaml.safe_load_all(text) if each]
    known = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert all(each["spec"].keys() <= known["properties"].keys() for each in objects)
    zones = [zone_config(each["metadata"]["name"], 1, each["spec"]["tenant"], each["spec"], "") for each in objects]
    assert [(zone.tenant, zone.reserved, zone.lending.lendable) for zone in zones] == [
        ("quiet", "40%", 0),
        ("F", "40%", 0),
    ]
    assert all(each["spec"]["pool"] == "demo" for each in objects)


def test_tenants_that_can_not_be_a_zones_are_named_and_their_zones_left_out(measured):
    tried = [
        candidate(measured, 150, 0.9, tenants=("a.b_C", "Bob Smith", "user@example.com", "-a", "b.", "\U0001f600"))
    ]
    text = as_yaml(tried[0], tried, setting(LOAD, blocks=200), 0.9, "demo", measured)
    assert "'Bob Smith', 'user@example.com', '-a', 'b.', '\U0001f600' are left out" in why(text)
    known = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    tenants = [each["spec"]["tenant"] for each in yaml.safe_load_all(text) if each]
    assert tenants == ["a.b_C"]
    assert all(re.search(known["properties"]["tenant"]["pattern"], tenant) for tenant in tenants)


def test_memory_saved_is_that_of_the_tier_too(measured):
    tried = [
        candidate(measured, 150, 0.9, tier_blocks=300),
        candidate(measured, 200, 0.9, tier_blocks=400, is_equal=True),
    ]
    text = as_yaml(tried[0], tried, setting(LOAD, blocks=200), 0.9, "demo", measured)
    assert "Equal shares needed 200 blocks and a tier of 400 for the same, which is 25% saved" in why(text)
    assert all(each.is_equal for each in search(setting(LOAD, blocks=160), 0, 1, [].append, 0.9, [2.0]))


@pytest.mark.parametrize(("wanted", "reported"), [(0.95, "95% of"), (0.996, "99.6% of"), (0.29, "29% of")])
def test_what_was_wanted_is_reported_as_it_was_said(measured, wanted, reported):
    tried = [candidate(measured, 150, 1.0)]
    assert f"each tenant has {reported} its requests" in why(
        as_yaml(tried[0], tried, setting(LOAD, blocks=200), wanted, "p", measured)
    )


def test_zones_of_tenants_with_odd_names_have_names_of_their_own():
    names = zone_names(["acme", "Acme", "ä/b", "-", "a.b", "a-b", "A", "a-6", "x" * 60, "zone-3", "ACME"])
    assert len(set(names)) == 11
    assert (names[0], names[7]) == ("acme", "a-6")
    assert all(name.replace("-", "").isalnum() and name == name.lower().strip("-") for name in names)


@pytest.mark.parametrize(
    ("reserved", "parts", "blocks", "shares"),
    [
        (1.0, [1, 1, 1], 400, ["33%", "33%", "33%"]),
        (0.6, [2, 0, 1], 400, ["40%", "0%", "20%"]),
        (1.0, [0, 0], 400, ["0%", "0%"]),
        (1.0, [1] * 120, 4000, [33] * 120),
        (1.0, [1] * 60, 4000, [66] * 60),
        (1.0, [8] * 19 + [1], 4000, [209] * 19 + [26]),
    ],
    ids=["thirds", "a tenant without", "nothing", "120 tenants", "60 tenants", "one that asks for little"],
)
def test_whole_blocks_are_reserved_where_percentages_are_too_coarse(reserved, parts, blocks, shares):
    assert shares_of(reserved, parts, blocks) == shares


def test_a_search_tries_equal_zones_first_and_is_the_same_for_the_same_seed():
    at = setting(LOAD, blocks=160)
    reported = []
    first, second = (search(at, 2, 7, reported.append, 0.9) for _ in range(2))
    assert [(each.blocks, each.zones, each.worst) for each in first] == [
        (each.blocks, each.zones, each.worst) for each in second
    ]
    assert reported == [*first, *second]
    assert all(each.is_equal for each in first[:7])
    assert first[0].blocks < first[6].blocks == 160


@pytest.fixture(scope="module")
def long_prompts_next_to_short_ones():
    """A tenant that computes a third of the long prompt is late, and no short prompt is repeated."""
    requests = []
    for number in range(20):
        requests.append(asked(float(number), "quiet", range(1, 61)))
        for each in range(1, 8):
            first = 1000 * (number * 10 + each)
            requests.append(asked(number + 0.1 * each, "flood", range(first, first + 8)))
    return replace(setting(requests, blocks=160), target=Target(first_token=0.012))


def test_a_search_goes_on_with_what_each_tenant_used(long_prompts_next_to_short_ones):
    searched = search(long_prompts_next_to_short_ones, 2, 7, [].append, 0.9)
    reserved = [{zone.tenant: zone.reserved for zone in each.zones} for each in searched[-2:]]
    assert reserved[0] == {"quiet": "100%", "flood": "0%"}, "only one is asked again for what it holds"
    assert searched[-2].blocks == next(each.blocks for each in searched if each.worst >= 0.9)
    assert searched[-2].worst >= 0.9


def test_equal_shares_are_tried_with_each_tier_whichever_is_named_first(long_prompts_next_to_short_ones):
    def tried(*tiers):
        found = search(long_prompts_next_to_short_ones, 3, 7, [].append, 0.9, tiers, 1.0)
        return [(each.blocks, each.tier_blocks, each.zones, each.worst) for each in found]

    assert tried(0.0, 2.0) == tried(2.0, 0.0) == tried(2.0, 0.0, 2.0)
    assert {tier_blocks // blocks for blocks, tier_blocks, _, _ in tried(2.0, 0.0)[:14]} == {0, 2}


def test_equal_shares_are_tried_with_less_of_each_tier(long_prompts_next_to_short_ones):
    searched = search(long_prompts_next_to_short_ones, 0, 7, [].append, 0.9, (0.0, 2.0), 0.5)
    smaller = narrowed(long_prompts_next_to_short_ones, searched, 0.9, [].append, 0.5)
    assert {round(each.tier_blocks / each.blocks) for each in smaller if each.is_equal} == {0, 2}


def test_what_falls_short_does_not_look_as_if_it_reached_the_target(measured):
    tried = [candidate(measured, 150, 0.9497)]
    assert "has least with 94.9%" in why(as_yaml(tried[0], tried, setting(LOAD, blocks=200), 0.95, "p", measured))
    assert " 0%" in trials_table([Trial("a", 0.9, 0.9, 1001, 1000)], 0.9)


def test_what_reached_the_target_is_tried_with_less_memory(long_prompts_next_to_short_ones):
    at, reported = long_prompts_next_to_short_ones, []
    searched = search(at, 2, 7, [].append, 0.9)
    smaller = narrowed(at, searched, 0.9, reported.append)
    assert reported == smaller
    assert {each.is_equal for each in smaller} == {True, False}
    equal, advised = (
        min(each.blocks for each in [*searched, *smaller] if each.worst >= 0.9 and each.is_equal is alike)
        for alike in (True, False)
    )
    assert advised < equal
    assert (
        advised
        == choose([*searched, *smaller], 0.9).blocks
        < min(each.blocks for each in searched if each.worst >= 0.9)
    )
    assert narrowed(at, searched, 1.1, reported.append) == [], "nothing reached it"


@pytest.mark.parametrize(
    ("too_little", "enough", "least"), [(0, 1000, 32), (0, 1000, 500), (400, 500, 453), (7, 8, 8), (0, 0, 0)]
)
def test_halving_ends_a_part_in_32_from_the_least(too_little, enough, least):
    asked_for = []

    def is_enough(size):
        asked_for.append(size)
        return size >= least

    found = halved(too_little, enough, is_enough)
    assert found >= least
    assert found - least <= (enough - too_little) / 32
    assert len(asked_for) <= 5
    assert all(too_little < size < enough for size in asked_for)


def test_who_serves_all_held_out_loads_buys_what_the_greediest_needs():
    loads = [Trial("a", 0.9, 0.8, 100, 90), Trial("b", 0.95, 0.9, 80, 200)]
    *_, whole, blank, first, second = trials_table(loads, 0.9).splitlines()
    assert whole.split() == ["all", "of", "them", "90.0%", "80.0%", "100", "blocks", "200", "blocks", "50%"]
    assert (blank, first, second) == ("", "1: a", "2: b")
    assert "all of them" not in trials_table(loads[:1], 0.9)
    unknown = trials_table([*loads, replace(loads[0], equal_blocks=None)], 0.9)
    assert unknown.splitlines()[4].endswith("more than was tried")


def test_held_out_loads_on_which_the_target_is_missed_are_named():
    loads = [Trial("a", 0.85, 0.8, 100, 90), Trial("b", 0.95, 0.9, 80, 200)]
    reported = trials_table(loads, 0.9).splitlines()[-1]
    assert reported.startswith("The advice misses the target of 90% on load 1: ")
    assert "misses" not in trials_table(loads[1:], 0.9)


def test_what_a_further_gib_brings_is_shown_from_size_to_size(measured):
    at = setting(LOAD, blocks=300)
    more = replace(measured, tenants={name: replace(each) for name, each in measured.tenants.items()})
    more.tenants["flood"].hit_tokens += 3600
    more.busy_seconds = measured.busy_seconds - 3.6
    tried = [candidate(measured, 100, 0.5), replace(candidate(measured, 200, 0.9), result=more)]
    header, row = return_table(tried, at, 4.0).splitlines()
    hours = measured.seconds / 3600
    gib = 100 * BLOCK_TOKENS * at.hardware.cache_bytes_per_token / 2**30
    blocks, _, tokens, seconds, money = row.split()
    assert blocks == "200"
    assert float(tokens.replace(",", "")) == pytest.approx(3600 / hours / gib, rel=0.01)
    assert float(seconds.replace(",", "")) == pytest.approx(3.6 / hours / gib, rel=0.01)
    assert float(money) == pytest.approx(3.6 / hours / gib / 3600 * 4.0, abs=0.01)
    assert "money" in header


def test_advice_is_tried_against_equal_shares_on_loads_that_it_has_not_seen(long_prompts_next_to_short_ones):
    at = long_prompts_next_to_short_ones
    reserved = {"quiet": "85%", "flood": "10%"}
    zones = [changed(zone, reserved=reserved[zone.tenant]) for zone in equal_zones(["quiet", "flood"], 80)]
    reported = []
    trial = try_on("other", at, zones, 80, [60, 80, 160], 0.9, reported.append)
    assert trial.advised > 0.9 > trial.equal, "the long prompt is kept whole"
    assert 60 < trial.advised_blocks <= 80 < trial.equal_blocks <= 160
    below = try_on("other", at, zones, 80, [80], 0.9, reported.append, tier_blocks=2000)
    assert below.equal > 0.9, "what the engine evicts is in the tier"
    assert f"{1 - trial.advised_blocks / trial.equal_blocks:.0%}" in trials_table([trial], 0.9)
