"""The table of what zones do not support, at the start, and the page that is made from it."""

import pytest

from hack.generate.unsupported_page import PAGE, page
from tenantzone_runtime.unsupported import UNSUPPORTED, Setting, check
from tenantzone_runtime.usage import FLAGS, UsageError


def test_the_page_is_what_the_code_declares():
    assert PAGE.read_text() == page(), "what is refused has changed: run make unsupported-page"


def test_each_feature_is_named_once():
    names = [unsupported.feature for unsupported in UNSUPPORTED]
    assert len(names) == len(set(names))


def a_refused_value(setting: Setting) -> str:
    return next(value for value in (*setting.refused, "0", "1") if setting.refuses(value))


def a_value_that_goes(setting: Setting) -> str | None:
    """A supported value; None: no value is supported."""
    values = [value for value in (setting.bound_to, *setting.but_for, setting.without, "other") if value is not None]
    return next((value for value in values if not setting.refuses(value)), None)


FLAGS_REFUSED = [(each, setting) for each in UNSUPPORTED for setting in each.flags]
VARIABLES_REFUSED = [(each, setting) for each in UNSUPPORTED for setting in each.variables]


@pytest.mark.parametrize(("unsupported", "setting"), FLAGS_REFUSED, ids=lambda value: getattr(value, "name", ""))
@pytest.mark.shows("refused by flag or variable")
def test_each_flag_is_refused_under_each_name_with_its_reason(unsupported, setting):
    for name in setting.names:
        with pytest.raises(UsageError) as refusal:
            check(["model", name, a_refused_value(setting)], {})
        assert str(refusal.value) == f"{name} can't be used: {unsupported.reason}; {unsupported.instead}"
        value = a_value_that_goes(setting)
        if value is not None:
            check(["model", name, value], {})


@pytest.mark.parametrize(("unsupported", "setting"), VARIABLES_REFUSED, ids=lambda value: getattr(value, "name", ""))
@pytest.mark.shows("refused by flag or variable")
def test_each_variable_is_refused_with_its_reason_and_empty_ones_are_not(unsupported, setting):
    for name in setting.names:
        with pytest.raises(UsageError) as refusal:
            check(["model"], {name: a_refused_value(setting)})
        assert (
            str(refusal.value)
            == f"the environment variable {name} can't be used: {unsupported.reason}; {unsupported.instead}"
        )
        check(["model"], {name: ""})
        value = a_value_that_goes(setting)
        if value is not None:
            check(["model"], {name: value})


@pytest.mark.parametrize(
    ("setting", "goes", "refused"),
    [
        (Setting("--grpc"), [], ["", "x"]),
        (Setting("-pp", bound_to="1"), ["1"], ["2", ""]),
        (Setting("--kind", refused=("this",)), ["that", "other"], ["this"]),
        (Setting("--hash", but_for=("sha256", "sha256_cbor")), ["sha256", "sha256_cbor"], ["xxhash", "builtin", ""]),
        (Setting("-dp", bound_to="1", but_beside=("-dpn",)), ["1"], ["2", ""]),
        (Setting("VLLM_PLUGINS", without="ours"), ["ours", "other,ours"], ["other", "ourselves"]),
    ],
    ids=[
        "whatever its value",
        "bound to one value",
        "some values",
        "all but some values",
        "one value, but for another flag",
        "a list that lacks something",
    ],
)
def test_what_a_setting_refuses(setting, goes, refused):
    assert [value for value in (*goes, *refused) if setting.refuses(value)] == refused


ONE_RANK = ["--data-parallel-size=2", "--data-parallel-rank", "1", "--data-parallel-size-local", "1"]


@pytest.mark.parametrize("rank", ["--data-parallel-rank", "--data_parallel_rank", "-dpn"])
def test_a_rank_with_an_api_server_of_its_own_goes_with_zones(rank):
    check(["model", "--data-parallel-size", "2", rank, "1"], {})
    check(["model", "-dp", "4", f"{rank}=3"], {})
    check(["model", "--data-parallel-external-lb", "--data-parallel-size", "2", "--nnodes", "2"], {})


@pytest.mark.parametrize(
    "more",
    [
        ["--data-parallel-size-local", "2"],
        ["-dpl", "2"],
        ["--data-parallel-start-rank", "1"],
        ["--data-parallel-hybrid-lb"],
        ["--data-parallel-multi-port-external-lb"],
        ["--no-data-parallel-external-lb"],
        ["--data-parallel-backend", "ray"],
        ["--enable-fault-tolerance"],
        ["--fault-tolerance-config.engine_recovery_timeout_sec", "60"],
    ],
    ids=lambda more: more[0],
)
def test_a_rank_is_refused_where_several_share_an_api_server_or_go_on_after_a_failure(more):
    check(["model", *ONE_RANK], {})
    with pytest.raises(UsageError, match=f"{more[0].partition('.')[0]} can't be used"):
        check(["model", *ONE_RANK, *more], {})


def test_zones_own_flags_go_with_zones():
    check([part for flag in FLAGS.items() for part in flag], {})
