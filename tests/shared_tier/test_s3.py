"""Chunks in a bucket of a real S3 server in this process's neighbour: moto's."""

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.shared_tier.engines import Engine, contents, prompt

KEYS = prompt("a", 4)


@pytest.fixture
def s3(monkeypatch):
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL_S3", endpoint),
    ):
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="cache")
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
