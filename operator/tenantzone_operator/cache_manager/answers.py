"""What the KV-cache manager's answers must be like for the rest to believe them; pure.

All else here takes them as they came, to compare them with what is declared. So the types below say what is read of an
answer, and no more: what a newer manager adds is no fault of it.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

LONGEST_MESSAGE: Final = 1000
"""Characters of what the manager says in words; the rest is cut off."""
Bytes = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""As a status can have it."""
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
"""By call; of the others nothing is read."""


def check_answer(call: str, answer: Mapping[str, Any]) -> None:
    """Refuse an answer that is not like one of the manager's to this call.

    Raises:
        ValueError: says what of it is not.
    """
    if call in _TYPES:
        msgspec.convert(answer, _TYPES[call])
