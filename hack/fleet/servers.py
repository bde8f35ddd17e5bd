"""A Redis for the manager's index, and an S3 server for blocks."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import botocore.session

from hack.debian import DebianError
from hack.harness.killable import KillableServer
from hack.harness.redis_server import RedisServer
from hack.ports import free_ports, is_served

BUCKET: Final = "cache"
_REGION: Final = "us-east-1"


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[RedisServer | None]:
    """A Redis; None: this machine has none and can get none."""
    folder.mkdir(parents=True)
    try:
        server = RedisServer(folder)
    except DebianError:
        yield None
        return
    with server:
        yield server


class Bucket:
    """A bucket of an S3 server (moto's), which keeps all in memory: when it is killed, its objects are gone.

    Args:
        folder: for its log.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (port,) = free_ports(1)
        self.endpoint = f"http://127.0.0.1:{port}"
        self.environment = {
            "AWS_ACCESS_KEY_ID": "demo",
            "AWS_SECRET_ACCESS_KEY": "demo",
            "AWS_DEFAULT_REGION": _REGION,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
        }
        """The variables by which an AWS client finds it."""
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        self.server = KillableServer("s3", folder, command, lambda: is_served(port))

    @property
    def options(self) -> dict[str, str]:
        """The options of a storage on this server, as the manager takes them."""
        return {"bucket": BUCKET, "endpoint": self.endpoint, "region": _REGION}

    def start(self) -> None:
        """Start the server, with an empty bucket."""
        self.server.start()
        client = botocore.session.get_session().create_client(
            "s3", _REGION, endpoint_url=self.endpoint, aws_access_key_id="demo", aws_secret_access_key="demo"
        )
        client.create_bucket(Bucket=BUCKET)


@contextlib.contextmanager
def bucket(folder: Path) -> Iterator[Bucket]:
    """A bucket while the block lasts."""
    made = Bucket(folder)
    made.start()
    try:
        yield made
    finally:
        made.server.kill()
