"""Chunks in a bucket of a real S3 server in a neighbouring process: moto's."""

import json
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tenantzone_runtime.shared.storage.places import ObjectPlace
from tenantzone_runtime.shared.storage.s3 import open_s3
from tests.odd_s3 import ODD, Odd, odd_server
from tests.shared_tier.engines import OBJECT, Engine, contents, group, prompt

KEYS = prompt("a", 4)
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture
def s3(monkeypatch):
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    for name, value in (CREDENTIALS | {"AWS_ENDPOINT_URL_S3": endpoint}).items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="cache")
    # All moto servers in a process share their buckets, with leftovers of earlier tests.
    for each in client.list_objects_v2(Bucket="cache").get("Contents", ()):
        client.delete_object(Bucket="cache", Key=each["Key"])
    yield client
    server.stop()


def test_engines_share_a_bucket(s3, own_manager):
    options = {"bucket": "cache", "prefix": "kv", "endpoint": s3.meta.endpoint_url, "region": "us-east-1"}
    own_manager.ask("RegisterStorage", storage={"name": "bucket", "type": "S3", "options": options})
    own_manager.ask("PutInstanceGroup", group={"name": "ml.chat", "storages": ["bucket"], "pools": ["ml/chat"]})
    first, second = Engine(own_manager.url, "acme"), Engine(own_manager.url, "acme")
    first.wait(lambda: first.store("acme", KEYS) == KEYS)
    assert second.load("acme", KEYS) == contents(KEYS)
    names = [each["Key"] for each in s3.list_objects_v2(Bucket="cache", Prefix="kv/objects/ml.chat/acme")["Contents"]]
    s3.put_object(Bucket="cache", Key=names[0], Body=b"x" * 288)
    s3.put_object(Bucket="cache", Key=names[1], Body=b"short")
    s3.delete_object(Bucket="cache", Key=names[2])
    assert second.load("acme", KEYS) == contents(KEYS[3:])
    assert (second.counts("acme").corrupt, second.counts("acme").vanished) == (2, 1)
    for each in (first, second):
        each.stop()


def test_what_the_manager_moves_opens_where_it_lies_then(s3, own_manager):
    options = {"bucket": "cache", "prefix": "moved", "endpoint": s3.meta.endpoint_url, "region": "us-east-1"}
    own_manager.ask("RegisterStorage", storage={"name": "bucket", "type": "S3", "options": options})
    terms = {"storages": ["files", "bucket"], "moves": {"bytes_per_second": 10**6}}
    quota = {"limit": 8 * OBJECT, "watermark": 0.25}
    own_manager.share(group("chat", types={"FileSystem": quota}, **terms))
    first, second = Engine(own_manager.url, "acme"), Engine(own_manager.url, "acme")
    assert first.store("acme", KEYS) == KEYS
    first.wait(lambda: held(own_manager, "FileSystem") == 2 * OBJECT)
    assert held(own_manager, "S3") == 2 * OBJECT
    assert second.load("acme", KEYS) == contents(KEYS)

    own_manager.share(group("chat", **terms))
    for _ in range(3):
        assert second.load("acme", KEYS) == contents(KEYS)
    second.wait(lambda: held(own_manager, "FileSystem") == 4 * OBJECT)
    third = Engine(own_manager.url, "acme")
    assert third.load("acme", KEYS) == contents(KEYS)
    assert [each.counts("acme").corrupt for each in (first, second, third)] == [0, 0, 0]
    for each in (first, second, third):
        each.stop()


def held(manager, storage_type):
    """Bytes that are in use, or are about to be."""
    (reported,) = manager.ask("ListInstanceGroups")["groups"]
    usage = reported["types"].get(storage_type, {"used": 0, "deleting": 0})
    return usage["used"] - usage["deleting"]


class _SendsMore(BaseHTTPRequestHandler):
    """Sends more than it announces, which a body in parts allows."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "64")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in (b"a" * 48, b"b" * 48):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")


class _SaysNothing(_SendsMore):
    """Does not announce how much it sends."""

    def send_header(self, keyword, value):
        if keyword != "Content-Length":
            super().send_header(keyword, value)


def _answer(handler, s3, monkeypatch, size):
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_port}")
        content = bytearray(size)
        is_whole = open_s3().read(ObjectPlace("cache", "kv/one"), content)
        server.shutdown()
    return is_whole, content


def test_a_server_that_sends_more_than_it_says_makes_no_buffer_longer(s3, monkeypatch):
    _, content = _answer(_SendsMore, s3, monkeypatch, 64)
    assert content == b"a" * 48 + b"b" * 16, "the thread's next object is to have its size, too"


def test_an_object_without_a_known_length_is_none_of_ours(s3, monkeypatch):
    assert _answer(_SaysNothing, s3, monkeypatch, 64) == (False, bytearray(64))


@pytest.mark.parametrize("answer", ODD)
def test_nothing_is_read_from_a_server_that_is_no_s3_server(monkeypatch, answer):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with odd_server(ODD[answer]) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        storages, content = open_s3(), bytearray(4)
        try:
            is_whole = storages.read(ObjectPlace("cache", "kv/one"), content)
        except OSError:
            is_whole = False
    assert not is_whole


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidToken", "TokenRefreshRequired"])
def test_credentials_that_have_expired_are_read_again(monkeypatch, code):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with odd_server(Odd(400, {}, f"<Error><Code>{code}</Code></Error>".encode())) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        storages = open_s3()
        before = storages._client
        for _ in range(2):
            with pytest.raises(OSError, match=code):
                storages.read(ObjectPlace("cache", "kv/one"), bytearray(4))
            assert storages._client is None
    assert before is not None


@pytest.fixture
def locked(s3):
    """Makes access keys; from then on, the server allows nothing without one of them."""
    iam = boto3.client("iam", endpoint_url=s3.meta.endpoint_url)
    iam.create_user(UserName="engine")
    allowed = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    iam.put_user_policy(UserName="engine", PolicyName="all", PolicyDocument=policy)
    keys = [iam.create_access_key(UserName="engine")["AccessKey"] for _ in range(2)]

    def check(count):
        url = f"{s3.meta.endpoint_url}/moto-api/reset-auth"
        asked = urllib.request.Request(url, data=count, headers={"Content-Type": "text/plain"}, method="POST")
        urllib.request.urlopen(asked).close()

    check(b"0")
    yield keys
    check(b"inf")


def test_credentials_that_were_wrong_are_read_again(s3, locked, tmp_path, monkeypatch):
    first, second = locked
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))

    def mount(key_id, secret):
        file.write_text(f"[default]\naws_access_key_id = {key_id}\naws_secret_access_key = {secret}\n")

    place, content = ObjectPlace("cache", "kv/one"), bytearray(b"content")
    mount(first["AccessKeyId"], "wrong")
    storages = open_s3()
    with pytest.raises(OSError, match=r"SignatureDoesNotMatch|InvalidAccessKeyId|AccessDenied"):
        storages.write(place, content)
    mount(second["AccessKeyId"], second["SecretAccessKey"])
    storages.write(place, content)
    # After the file is removed, the credentials read from it stay in use.
    file.unlink()
    assert storages.read(place, bytearray(len(content)))
