"""A bucket of an S3 server, with one object per part: ``PREFIX/objects/GROUP/INSTANCE/KEY-LOCATION.SPEC``."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from botocore.exceptions import ClientError

from tenantzone_contract.cache.s3 import is_denied
from tenantzone_manager.core.records import LocationSpec
from tenantzone_manager.storages.backend import (
    MAX_OWNER_BYTES,
    Claim,
    DataStorageBackend,
    Place,
    StorageError,
    StoredObject,
    parsed_part,
    part_name,
)
from tenantzone_manager.storages.s3_client import S3Client

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
        self._client = S3Client({name: text for name, text in given.items() if text}, credentials, timeout_seconds)

    def uri(self, place: Place, spec: LocationSpec) -> str:
        return f"s3://{self._bucket}/{quote(self._name(place, spec))}?size={spec.size}"

    async def create(self, places: Sequence[Place]) -> None:
        """Does nothing, because S3 needs no preparation."""

    async def delete(self, places: Sequence[Place]) -> None:
        await self._delete([self._name(place, spec) for place in places for spec in place.location.specs])

    async def exist(self, places: Sequence[Place]) -> list[bool]:
        def look(client: Any) -> list[bool]:
            return [all(self._is_whole(client, place, spec) for spec in place.location.specs) for place in places]

        return await self._client.ask(look)

    async def read(self, place: Place, spec: LocationSpec) -> bytes:
        name = self._name(place, spec)

        def get(client: Any) -> bytes:
            answer = client.get_object(Bucket=self._bucket, Key=name)
            with answer["Body"] as body:
                if answer["ContentLength"] != spec.size:
                    raise StorageError(f"the size of {name} is not {spec.size} bytes")
                content: bytes = body.read()
            return content

        return await self._client.ask(get)

    async def write(self, place: Place, spec: LocationSpec, content: bytes) -> None:
        name = self._name(place, spec)
        await self._client.ask(lambda client: client.put_object(Bucket=self._bucket, Key=name, Body=content))

    async def check_health(self) -> None:
        is_given_up = threading.Event()
        try:
            await self._client.ask(partial(self._check_claim, is_given_up), is_check=True)
        except asyncio.CancelledError:
            # The thread continues. It must not write a claim later, when the place may belong to another storage.
            is_given_up.set()
            raise
        except StorageError as error:
            if is_denied(error.__cause__):
                # The next attempt will search for credentials again.
                await self._client.close()
            raise
        self.claim.is_made()

    def _check_claim(self, is_given_up: threading.Event, client: Any) -> None:
        name = f"{self._prefix}/owner".lstrip("/")
        place = f"{self._bucket}/{self._prefix}"
        if self.claim.has_to_write(self._read(client, name), place) and not is_given_up.is_set():
            client.put_object(Bucket=self._bucket, Key=name, Body=self.claim.text.encode())
            # Read back, because another storage may have written its claim at the same time.
            if self.claim.has_to_write(self._read(client, name), place):
                raise StorageError(f"several storages claim {place}; the claim is retried")

    async def objects(self) -> AsyncIterator[list[StoredObject]]:
        begin = f"{self._prefix}/objects/".lstrip("/")

        def pages(client: Any) -> Any:
            return iter(client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=begin))

        def next_objects(_: Any) -> list[StoredObject] | None:
            page = next(listing, None)
            return None if page is None else [each for each in map(_stored, page.get("Contents", ())) if each]

        listing = await self._client.ask(pages)
        while (found := await self._client.ask(next_objects)) is not None:
            yield found

    async def remove(self, objects: Sequence[StoredObject]) -> None:
        await self._delete([each.name for each in objects])

    async def close(self) -> None:
        await self._client.close()

    def _name(self, place: Place, spec: LocationSpec) -> str:
        return f"{self._prefix}/objects/{place.group}/{place.instance}/{part_name(place, spec)}".lstrip("/")

    def _read(self, client: Any, name: str) -> str:
        try:
            with client.get_object(Bucket=self._bucket, Key=name)["Body"] as body:
                return str(body.read(MAX_OWNER_BYTES).decode(errors="replace"))
        except client.exceptions.NoSuchKey:
            return ""

    async def _delete(self, names: Sequence[str]) -> None:
        def delete(client: Any) -> None:
            for begin in range(0, len(names), _AT_ONCE):
                some = [{"Key": name} for name in names[begin : begin + _AT_ONCE]]
                answer = client.delete_objects(Bucket=self._bucket, Delete={"Objects": some, "Quiet": True})
                if answer.get("Errors"):
                    first = answer["Errors"][0]
                    raise StorageError(f"{first.get('Key')} was not deleted: {first.get('Message')}")

        await self._client.ask(delete)

    def _is_whole(self, client: Any, place: Place, spec: LocationSpec) -> bool:
        try:
            head = client.head_object(Bucket=self._bucket, Key=self._name(place, spec))
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                return False
            raise
        return bool(head["ContentLength"] == spec.size)


def _stored(listed: Any) -> StoredObject | None:
    *_, group, instance, name = f"//{listed['Key']}".split("/")
    parsed = parsed_part(name)
    if parsed is None:
        return None
    return StoredObject(group, instance, *parsed, listed["Key"], listed["LastModified"].timestamp())
