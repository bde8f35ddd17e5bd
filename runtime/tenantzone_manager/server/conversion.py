"""Converts between Protobuf messages and plain Python values. Requests are decoded from the plain values."""

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_ONLY_FIELD: Final = {"SpecNames": "names", "InstanceQuotas": "types"}
"""Messages that exist only because a Protobuf map can't contain lists or maps, and the name of their only field."""


def to_plain(message: Message) -> Any:
    """Returns a message's fields as plain values, without unset fields."""
    kind = message.DESCRIPTOR.name
    if kind == "StorageOption":
        which = message.WhichOneof("value")
        return getattr(message, which) if which else None
    plain = {field.name: _value_to_plain(field, value) for field, value in message.ListFields()}
    if kind not in _ONLY_FIELD:
        return plain
    only = message.DESCRIPTOR.fields_by_name[_ONLY_FIELD[kind]]
    return plain.get(only.name, {} if _is_map(only) else ())


def repeated_values(message: Message, most: int) -> int:
    """Returns the number of values in the lists and maps of a message, including nested lists and maps.

    Counting stops when the number exceeds ``most``. A list is counted before its messages are read, because reading a
    list of many tiny messages takes long.
    """
    count, messages = 0, [message]
    for each in messages:
        for field, value in each.ListFields():
            if field.is_repeated:
                count += len(value)
            if count > most:
                return count
            messages += _messages(field, value)
    return count


def from_plain(kind: type[Message], plain: Any) -> Message:
    """Returns a message of type ``kind`` with the values in ``plain``. Fields whose value is None stay unset."""
    message = kind()
    _fill(message, plain)
    return message


def _value_to_plain(field: FieldDescriptor, value: Any) -> Any:
    if _is_map(field):
        of_messages = field.message_type.fields_by_name["value"].message_type is not None
        return {key: to_plain(value[key]) if of_messages else value[key] for key in value}
    if field.message_type is None:
        return list(value) if field.is_repeated else value
    return [to_plain(each) for each in value] if field.is_repeated else to_plain(value)


def _fill(message: Message, plain: Any) -> None:
    kind = message.DESCRIPTOR.name
    if kind == "StorageOption":
        which = "flag" if isinstance(plain, bool) else "number" if isinstance(plain, int) else "text"
        setattr(message, which, plain)
        return
    if kind in _ONLY_FIELD:
        plain = {_ONLY_FIELD[kind]: plain}
    for name, value in plain.items():
        if value is not None:
            _set(message, message.DESCRIPTOR.fields_by_name[name], value)


def _set(message: Message, field: FieldDescriptor, value: Any) -> None:
    target = getattr(message, field.name)
    if _is_map(field):
        of_messages = field.message_type.fields_by_name["value"].message_type is not None
        for key, each in value.items():
            if of_messages:
                _fill(target[key], each)
            else:
                target[key] = each
    elif field.message_type is None:
        if field.is_repeated:
            target.extend(value)
        else:
            setattr(message, field.name, value)
    elif field.is_repeated:
        for each in value:
            _fill(target.add(), each)
    else:
        target.SetInParent()
        _fill(target, value)


def _messages(field: FieldDescriptor, value: Any) -> Iterable[Message]:
    """Returns the messages in a field's value."""
    if field.message_type is None:
        return ()
    if _is_map(field):
        return value.values() if field.message_type.fields_by_name["value"].message_type is not None else ()
    return value if field.is_repeated else (value,)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)
