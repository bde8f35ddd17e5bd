"""A bucket of an S3 server, with one object per part: ``PREFIX/objects/GROUP/INSTANCE/KEY-LOCATION.SPEC``."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from tenantzone_manager.core.records import LocationSpec
from tenantzone_manager.storages.backend import (
    Claim,
    DataStorageBackend,
    Place,
    StorageError,
    StoredObject,
    parsed_part,
    part_name,
)
from tenantzone_manager.storages.s3_objects import S3Objects

_AT_ONCE: Final = 1000
"""Maximum number of objects that one S3 request can delete."""


class S3Storage(DataStorageBackend):
    """Stores objects in a bucket.

    Args:
        bucket: name of an existing bucket.
        prefix: prefix of the names of all objects.
        endpoint: URL of the server, or empty for AWS.
        region: name of the region, or empty to use the region in the environment.
        claim: claim to the prefix.
        credentials: AWS credentials file with a profile ``default``, which is reloaded when it changes. If None, the
            default credential chain is used, for example the environment or the pod's identity.
        timeout_seconds: timeout in seconds for connecting and for reading an answer.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        endpoint: str,
        region: str,
        claim: Claim,
        credentials: Path | None = None,
        timeout_seconds: float = 5.0,
    ) -> None:
        super().__init__(claim)
        self._bucket = bucket
        self._prefix = prefix.strip("/")
        given = {"endpoint_url": endpoint, "region_name": region}
        where = {name: value for name, value in given.items() if value}
        config = AioConfig(
            connect_timeout=timeout_seconds, read_timeout=timeout_seconds, retries={"total_max_attempts": 2}
        )
        self._options: dict[str, Any] = {"config": config, **where}
        self._objects = S3Objects(bucket, where, credentials, timeout_seconds)
        self._credentials = credentials
        self._read_credentials = b""
        self._stack = contextlib.AsyncExitStack()
        self._client: Any = None

    def uri(self, place: Place, spec: LocationSpec) -> str:
        return f"s3://{self._bucket}/{quote(self._name(place, spec))}?size={spec.size}"

    async def create(self, places: Sequence[Place]) -> None:
        """Does nothing, because S3 needs no preparation."""

    async def delete(self, places: Sequence[Place]) -> None:
        await self._delete([self._name(place, spec) for place in places for spec in place.location.specs])

    async def exist(self, places: Sequence[Place]) -> list[bool]:
        return [await self._is_whole(place) for place in places]

    async def read(self, place: Place, spec: LocationSpec) -> bytes:
        await self._look_at_credentials()
        return await self._objects.read(self._name(place, spec), spec.size)

    async def write(self, place: Place, spec: LocationSpec, content: bytes) -> None:
        await self._look_at_credentials()
        await self._objects.write(self._name(place, spec), content)

    async def check_health(self) -> None:
        try:
            await self._check_claim()
        except StorageError as error:
            if _is_shut_out(error.__cause__):
                # The next attempt will search for credentials again.
                await self.close()
            raise

    async def _check_claim(self) -> None:
        await self._look_at_credentials()
        client = await self._connected()
        name = f"{self._prefix}/owner".lstrip("/")
        place = f"{self._bucket}/{self._prefix}"
        if self.claim.has_to_write(await self._read(name), place):
            with _storage_errors():
                await client.put_object(Bucket=self._bucket, Key=name, Body=self.claim.text.encode())
            # Read back, because another storage may have written its claim at the same time.
            if self.claim.has_to_write(await self._read(name), place):
                raise StorageError(f"several storages claim {place}; the claim is retried")
        self.claim.is_made()

    async def objects(self) -> AsyncIterator[list[StoredObject]]:
        client = await self._connected()
        begin = f"{self._prefix}/objects/".lstrip("/")
        with _storage_errors():
            async for page in client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=begin):
                yield [each for each in map(_stored, page.get("Contents", ())) if each is not None]

    async def remove(self, objects: Sequence[StoredObject]) -> None:
        await self._delete([each.name for each in objects])

    async def close(self) -> None:
        await self._stack.aclose()
        self._client = None
        self._objects.close()

    def _name(self, place: Place, spec: LocationSpec) -> str:
        return f"{self._prefix}/objects/{place.group}/{place.instance}/{part_name(place, spec)}".lstrip("/")

    async def _connected(self) -> Any:
        if self._client is None:
            session = get_session()
            if self._credentials is not None:
                await self._look_at_credentials()
                session.set_config_variable("credentials_file", str(self._credentials))
                session.set_config_variable("profile", "default")
            with _storage_errors():
                client = session.create_client("s3", **self._options)
                self._client = await self._stack.enter_async_context(client)
        return self._client

    async def _look_at_credentials(self) -> None:
        """Close the connections if the credentials file has changed, so that the next request reconnects."""
        if self._credentials is None:
            return
        try:
            found = await asyncio.to_thread(self._credentials.read_bytes)
        except OSError as error:
            raise StorageError(f"can't read the credentials file: {error}") from error
        if found != self._read_credentials:
            self._read_credentials = found
            await self.close()

    async def _read(self, name: str) -> str:
        client = await self._connected()
        try:
            answer = await client.get_object(Bucket=self._bucket, Key=name)
            async with answer["Body"] as body:
                return str((await body.read()).decode(errors="replace"))
        except client.exceptions.NoSuchKey:
            return ""
        except (BotoCoreError, ClientError, OSError) as error:
            raise StorageError(str(error)) from error

    async def _delete(self, names: Sequence[str]) -> None:
        client = await self._connected()
        for begin in range(0, len(names), _AT_ONCE):
            some = [{"Key": name} for name in names[begin : begin + _AT_ONCE]]
            with _storage_errors():
                answer = await client.delete_objects(Bucket=self._bucket, Delete={"Objects": some, "Quiet": True})
            if answer.get("Errors"):
                first = answer["Errors"][0]
                raise StorageError(f"{first.get('Key')} was not deleted: {first.get('Message')}")

    async def _is_whole(self, place: Place) -> bool:
        client = await self._connected()
        for spec in place.location.specs:
            try:
                head = await client.head_object(Bucket=self._bucket, Key=self._name(place, spec))
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                    return False
                raise StorageError(str(error)) from error
            except (BotoCoreError, OSError) as error:
                raise StorageError(str(error)) from error
            if head["ContentLength"] != spec.size:
                return False
        return True


@contextlib.contextmanager
def _storage_errors() -> Any:
    try:
        yield
    except (BotoCoreError, ClientError, OSError) as error:
        raise StorageError(str(error)) from error


def _is_shut_out(error: BaseException | None) -> bool:
    """Returns whether an error means that the server refused access, or that no credentials were found."""
    if isinstance(error, ClientError):
        return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") in (401, 403)
    return isinstance(error, NoCredentialsError)


def _stored(listed: Any) -> StoredObject | None:
    *_, group, instance, name = listed["Key"].split("/")
    parsed = parsed_part(name)
    if parsed is None:
        return None
    return StoredObject(group, instance, *parsed, listed["Key"], listed["LastModified"].timestamp())
