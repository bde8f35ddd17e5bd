"""The schemas keep the promises of the last release; and the checker of that notices each way to break one."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hack.compatibility import breaks, newest_release, read_definitions
from hack.release.schemas import CRDS
from tests.operator.previous import is_known, previous_schemas


@pytest.mark.skipif(not is_known(), reason="no history of the previous release here: git fetch --unshallow")
def test_nothing_that_was_released_is_taken_away_or_tightened(tmp_path: Path):
    present, released = read_definitions(CRDS), read_definitions(previous_schemas(tmp_path))
    assert released
    assert {name: found for name in released if (found := breaks(released[name], present[name]))} == {}


def test_before_the_first_release_there_is_no_newest_one(tmp_path: Path):
    assert newest_release(tmp_path) is None
    assert newest_release(tmp_path / "missing") is None


def test_releases_are_compared_as_numbers(tmp_path: Path):
    for name in ("v0.9.0", "v0.10.0", "v0.2.11"):
        (tmp_path / name).mkdir()

    assert newest_release(tmp_path).name == "v0.10.0"


# A definition with one of everything that the checker looks at.
FIELDS = {
    "text": {"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^a", "default": "a"},
    "count": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 10},
    "choice": {"type": "string", "enum": ["One", "Two"]},
    "plain": {"type": "string"},
    "list": {"type": "array", "maxItems": 4, "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    "labels": {"type": "object", "maxProperties": 4, "additionalProperties": {"type": "string"}},
    "nested": {
        "type": "object",
        "required": ["needed"],
        "properties": {"needed": {"type": "string"}, "spare": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": "has(self.needed)", "message": "name it"}],
    },
}


def definition() -> dict[str, Any]:
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "description": "A thing.", "properties": FIELDS}},
    }
    names = {"kind": "Thing", "plural": "things", "shortNames": ["th"], "categories": ["all"]}
    return copy.deepcopy({"spec": {"group": "g", "scope": "Namespaced", "names": names, "versions": [version]}})


def changed(change: Callable[[dict[str, Any], dict[str, Any]], object]) -> dict[str, Any]:
    """The definition after a change of its spec or its fields."""
    made = definition()
    change(made["spec"], made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"])
    return made


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda _, f: f.pop("plain"), "v1alpha1.plain: the field is gone", id="a field removed"),
        pytest.param(
            lambda _, f: f["nested"]["properties"].pop("spare"), "v1alpha1.nested.spare", id="a nested field removed"
        ),
        pytest.param(lambda _, f: f["plain"].update(type="integer"), "type was 'string'", id="another type"),
        pytest.param(
            lambda _, f: f["list"]["items"].update(type="integer"), "v1alpha1.list[]", id="another type of items"
        ),
        pytest.param(
            lambda _, f: f["labels"]["additionalProperties"].update(type="integer"),
            "v1alpha1.labels[]",
            id="another type of values",
        ),
        pytest.param(lambda _, f: f["list"].pop("items"), "items was", id="items of any kind"),
        pytest.param(lambda _, f: f["choice"]["enum"].remove("Two"), "'Two'", id="an enum value removed"),
        pytest.param(lambda _, f: f["plain"].update(enum=["a"]), "only ['a']", id="an enum where there was none"),
        pytest.param(
            lambda _, f: f["nested"]["required"].append("spare"), "spare: the field is required", id="a field required"
        ),
        pytest.param(lambda _, f: f["count"].update(maximum=9), "maximum was 10, is 9", id="a smaller maximum"),
        pytest.param(lambda _, f: f["text"].update(maxLength=62), "maxLength", id="a smaller length"),
        pytest.param(lambda _, f: f["list"].update(maxItems=3), "maxItems", id="fewer items"),
        pytest.param(lambda _, f: f["labels"].update(maxProperties=3), "maxProperties", id="fewer keys"),
        pytest.param(lambda _, f: f["plain"].update(maxLength=9), "was unset, is 9", id="a bound where there was none"),
        pytest.param(lambda _, f: f["count"].update(minimum=1), "minimum was 0, is 1", id="a larger minimum"),
        pytest.param(lambda _, f: f["text"].update(minLength=2), "minLength", id="a larger least length"),
        pytest.param(lambda _, f: f["list"].update(minItems=1), "minItems", id="a least number of items"),
        pytest.param(lambda _, f: f["text"].update(pattern="^ab"), "pattern was ^a", id="another pattern"),
        pytest.param(lambda _, f: f["plain"].update(pattern="^a"), "pattern was unset", id="a new pattern"),
        pytest.param(lambda _, f: f["count"].update(format="int64"), "format was int32", id="another format"),
        pytest.param(lambda _, f: f["text"].update(default="b"), "default was 'a'", id="another default"),
        pytest.param(lambda _, f: f["text"].pop("default"), "default was 'a', is None", id="a default removed"),
        pytest.param(lambda _, f: f["plain"].update(default="b"), "default was None", id="a default added"),
        pytest.param(
            lambda _, f: f["nested"]["x-kubernetes-validations"].append({"rule": "false", "message": "no"}),
            "a new rule, false",
            id="a new rule",
        ),
        pytest.param(
            lambda _, f: f["list"].update({"x-kubernetes-list-type": "atomic"}), "list-type", id="another list type"
        ),
        pytest.param(lambda _, f: f["plain"].update({"not": {"enum": ["a"]}}), "not was None", id="an unknown keyword"),
        pytest.param(
            lambda _, f: f["nested"]["x-kubernetes-validations"].append({"rule": "!has(self.spare) || false"}),
            "a new rule, !has(self.spare)",
            id="a new rule where a field is set that was there",
        ),
        pytest.param(lambda s, _: s["versions"].clear(), "the version is gone", id="a version removed"),
        pytest.param(lambda s, _: s["versions"][0].update(served=False), "not served", id="a version not served"),
        pytest.param(
            lambda s, _: s["versions"][0].pop("subresources"), "the subresource status is gone", id="no subresource"
        ),
        pytest.param(lambda s, _: s.update(scope="Cluster"), "scope: was Namespaced", id="another scope"),
        pytest.param(lambda s, _: s.update(group="h"), "group: was g", id="another group"),
        pytest.param(lambda s, _: s["names"].update(plural="thingies"), "names.plural", id="another name"),
        pytest.param(lambda s, _: s["names"].pop("shortNames"), "th is gone", id="a short name removed"),
    ],
)
def test_a_break_is_noticed(change: Callable[[dict[str, Any], dict[str, Any]], object], said: str):
    (found,) = breaks(definition(), changed(change))

    assert said in found


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda _, f: f.update(added={"type": "string", "default": "b"}), id="a new optional field"),
        pytest.param(
            lambda _, f: f.update(added={"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}}),
            id="a new optional field that requires what is new in it",
        ),
        pytest.param(
            lambda _, f: (
                f["nested"]["properties"].update(added={"type": "string"}),
                f["nested"]["x-kubernetes-validations"].append({"rule": "!has(self.added) || has(self.spare)"}),
            ),
            id="a rule where a new field is set",
        ),
        pytest.param(lambda _, f: f["choice"]["enum"].append("Three"), id="a new enum value"),
        pytest.param(lambda _, f: f["choice"].pop("enum"), id="any value in place of an enum"),
        pytest.param(lambda _, f: f["count"].update(minimum=-1, maximum=11), id="wider bounds"),
        pytest.param(lambda _, f: [f["text"].pop(key) for key in ("maxLength", "pattern")], id="checks removed"),
        pytest.param(lambda _, f: f["nested"].pop("required"), id="a field that may be left out"),
        pytest.param(lambda _, f: f["nested"].pop("x-kubernetes-validations"), id="a rule removed"),
        pytest.param(lambda _, f: f["nested"]["x-kubernetes-validations"][0].update(message="!"), id="other words"),
        pytest.param(lambda _, f: f["plain"].update(description="Plain."), id="a description"),
        pytest.param(lambda s, _: s["versions"].append({"name": "v1beta1"}), id="a new version"),
        pytest.param(lambda s, _: s["names"]["shortNames"].append("t"), id="a new short name"),
        pytest.param(lambda s, _: s["versions"][0].update(additionalPrinterColumns=[{"name": "X"}]), id="a column"),
    ],
)
def test_what_only_adds_is_allowed(change: Callable[[dict[str, Any], dict[str, Any]], object]):
    assert breaks(definition(), changed(change)) == []
