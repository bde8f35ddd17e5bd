"""docs/reference/resources.md agrees with the schemas."""

import yaml

from hack.generate.crd_reference import PAGE, REPOSITORY, page


def test_the_reference_page_is_what_the_schemas_say():
    assert PAGE.read_text() == page(), "crds/ has changed: run make crd-reference"


def test_each_description_of_a_field_and_each_message_of_a_rule_is_on_the_page():
    words = " ".join(PAGE.read_text().split())
    for name in ("tenantzones", "zonepools"):
        crd = yaml.safe_load((REPOSITORY / "crds" / f"{name}.yaml").read_text())
        properties = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        texts = [*texts_in(properties["spec"]["properties"]), *texts_in(properties["status"]["properties"])]
        assert texts
        assert [text for text in texts if text not in words] == []


def texts_in(schema) -> list[str]:
    """All descriptions, wherever they are, so that a keyword that the page does not follow is noticed."""
    found = []
    if isinstance(schema, dict):
        found = [schema[key] for key in ("description", "message") if isinstance(schema.get(key), str)]
    below = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    return found + [text for each in below for text in texts_in(each)]
