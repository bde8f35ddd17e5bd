"""Which headers of a request may occur twice, and what they may say about its body."""

import pytest

from tenantzone_runtime.frontend.responses.answers import Refusal
from tenantzone_runtime.frontend.responses.headers import check_headers


def refused(*headers: tuple[bytes, bytes]) -> int | None:
    try:
        check_headers(headers)
    except Refusal as refusal:
        return refusal.status
    return None


@pytest.mark.parametrize("value", [b"gzip", b"GZIP", b"identity, gzip", b"br,identity", b"gzip, gzip"])
def test_a_coding_is_refused_wherever_it_stands(value):
    plain = (b"content-encoding", b"identity")
    assert refused((b"Content-Encoding", value)) == 415
    assert refused(plain, (b"content-encoding", value)) == 415
    assert refused((b"content-encoding", value), plain) == 415


@pytest.mark.parametrize("value", [b"", b"identity", b"Identity", b"identity, identity"])
def test_none_is_none(value):
    assert refused((b"content-encoding", value), (b"content-encoding", value)) is None


@pytest.mark.parametrize("name", [b"host", b"content-length", b"content-type", b"transfer-encoding", b"Host"])
def test_what_says_how_to_read_a_request_comes_once(name):
    assert refused((name, b"1")) is None
    assert refused((name, b"1"), (name.lower(), b"1")) == 400


def test_a_length_and_chunks_exclude_each_other():
    assert refused((b"content-length", b"1"), (b"transfer-encoding", b"chunked")) == 400


def test_others_may_come_as_often_as_they_like():
    assert refused((b"accept", b"a"), (b"accept", b"b"), (b"x-trace", b"1"), (b"x-trace", b"2")) is None
