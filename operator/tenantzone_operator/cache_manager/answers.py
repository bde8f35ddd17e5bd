"""Validates the KV-cache manager's answers.

These types only validate the JSON. The rest of this package does not use them, but compares the decoded JSON with the
declared objects. The types contain only the fields that the operator reads, so a newer manager may send more fields.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

LONGEST_MESSAGE: Final = 1000
"""Maximum number of characters of a message from the manager. The operator truncates longer messages."""
Bytes = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""A number of bytes within the bounds that the CRDs set for statuses."""
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class _Storage(Struct):
    name: str
    type: str
    options: dict[str, Any] = {}


class _StorageAnswer(Struct):
    storage: _Storage
    available: bool = False
    problem: str = ""
    used: Bytes = 0


class _Storages(Struct):
    storages: list[_StorageAnswer]


class _Group(Struct):
    name: str
    storages: list[str]
    aliases: list[str] = []


class _Usage(Struct):
    used: Bytes = 0


class _GroupAnswer(Struct):
    group: _Group
    total: _Usage
    types: dict[str, _Usage] = {}
    instances: Count = 0
    evicted_blocks: Bytes = 0
    evicted_bytes: Bytes = 0


class _Groups(Struct):
    groups: list[_GroupAnswer]


class _Instance(Struct):
    name: str
    group: str
    pool: str = ""


class _InstanceAnswer(Struct):
    instance: _Instance
    bytes_by_type: dict[str, Bytes] = {}


class _Instances(Struct):
    instances: list[_InstanceAnswer]


class _Account(Struct):
    name: str
    pool: str


class _Accounts(Struct):
    accounts: list[_Account]


_TYPES: Final[Mapping[str, type[Struct]]] = {
    "ListStorages": _Storages,
    "RegisterStorage": _StorageAnswer,
    "ListInstanceGroups": _Groups,
    "PutInstanceGroup": _GroupAnswer,
    "ListInstances": _Instances,
    "ListServiceAccounts": _Accounts,
}
"""Type of a call's answer, by the call's name. The operator reads nothing from the answers to other calls."""


def check_answer(call: str, answer: Mapping[str, Any]) -> None:
    """Check that the fields that the operator reads from a call's answer are valid.

    Raises:
        ValueError: the answer is invalid; the message contains the path of the invalid field.
    """
    if call in _TYPES:
        msgspec.convert(answer, _TYPES[call])
