"""docs/metrics.md agrees with the declarations in the code."""

from hack.generate.metrics_page import PAGE, page


def test_the_reference_page_is_what_the_code_declares():
    assert PAGE.read_text() == page(), "the metrics have changed: run make metrics-page"
