"""Messages as frames: one JSON frame with a type tag, then one binary frame per attachment.

What arrives equals what was sent, except that a tuple inside a free ``Json`` field arrives as a list. Whatever JSON
would change silently (integer keys, bytes) is refused where it is sent: there the culprit is still on the stack.
"""

import dataclasses
import json
import types
from collections.abc import Callable
from typing import Any, Union, get_args, get_origin, get_type_hints

from cutwater.control.messages import Message
from cutwater.errors import ControlError

_ATTACHMENTS = "attachments"
_TYPE = "type"

_Check = Callable[[Any], Any]
"""Takes a JSON value, gives the field's value, raises ValueError if it does not fit."""


def encode(message: Message) -> list[bytes]:
    """The message's frames. Raises ControlError when a field cannot be carried as JSON."""
    name = type(message).__name__
    if name not in _CLASSES:
        raise ControlError(f"{name} is not a control message; the known ones stand in control/messages.py")
    values: dict[str, Any] = {_TYPE: name}
    attachments: tuple[bytes, ...] = ()
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if field.name == _ATTACHMENTS:
            attachments = value
        else:
            _refuse_what_json_changes(f"{name}.{field.name}", value)
            values[field.name] = value
    for position, attachment in enumerate(attachments):
        if not isinstance(attachment, bytes):
            raise ControlError(f"{name}.attachments[{position}] is {type(attachment).__name__}; attachments are bytes")
    try:
        head = json.dumps(values, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise ControlError(f"{name} cannot be written as JSON: {error}") from error
    return [head, *attachments]


def decode(frames: list[bytes]) -> Message:
    """The message that ``encode`` made these frames of. Raises ControlError for anything else."""
    if not frames:
        raise ControlError("a control message without frames")
    try:
        values = json.loads(frames[0])
    except (ValueError, RecursionError) as error:
        raise ControlError(f"a control message that is not JSON: {frames[0][:80]!r} ({error})") from error
    if not isinstance(values, dict) or not isinstance(values.get(_TYPE), str):
        raise ControlError(f"a control message without a type: {frames[0][:80]!r}")
    name = values.pop(_TYPE)
    if name not in _CLASSES:
        raise ControlError(f"a control message of unknown type {name!r}: do driver and workers run one version?")
    return _build(name, values, tuple(frames[1:]))


def _build(name: str, values: dict[str, Any], attachments: tuple[bytes, ...]) -> Message:
    checks = _CHECKS[name]
    if unknown := values.keys() - checks.keys():
        raise ControlError(f"{name} has no field {', '.join(sorted(unknown))}: do driver and workers run one version?")
    fields: dict[str, Any] = {}
    for field, value in values.items():
        try:
            fields[field] = checks[field](value)
        except ValueError as error:
            raise ControlError(f"{name}.{field} must be {error}, got {value!r:.80}") from error
    if _ATTACHMENTS in _FIELDS[name]:
        fields[_ATTACHMENTS] = attachments
    elif attachments:
        raise ControlError(f"{name} carries no attachments, but {len(attachments)} came with it")
    try:
        return _CLASSES[name](**fields)
    except TypeError as error:
        raise ControlError(f"{name} is incomplete: {error}") from error


def _refuse_what_json_changes(where: str, value: Any) -> None:
    match value:
        case None | bool() | int() | float() | str():
            return
        case dict():
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise ControlError(f"{where} has the key {key!r}; JSON keys are strings")
                _refuse_what_json_changes(f"{where}[{key!r}]", inner)
        case list() | tuple():
            for position, inner in enumerate(value):
                _refuse_what_json_changes(f"{where}[{position}]", inner)
        case bytes() | bytearray() | memoryview():
            raise ControlError(f"{where} holds bytes; bytes travel in `attachments` only")
        case _:
            raise ControlError(f"{where} holds a {type(value).__name__}, which is not JSON")


def _exactly(*allowed: type) -> _Check:
    """Accepts instances of exactly these classes: JSON's true is not a number."""
    spelled = " or ".join("null" if kind is types.NoneType else kind.__name__ for kind in allowed)

    def check(value: Any) -> Any:
        if type(value) not in allowed:
            raise ValueError(spelled)
        return value

    return check


def _float(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError("a number")
    return float(value)


def _tuple_of(inner: _Check) -> _Check:
    def check(value: Any) -> Any:
        if not isinstance(value, list):
            raise ValueError("a list")
        return tuple(inner(item) for item in value)

    return check


def _dict_of(inner: _Check) -> _Check:
    def check(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError("an object")
        return {key: inner(item) for key, item in value.items()}

    return check


def _check_for(hint: Any) -> _Check:
    """How a field of this type is read back. An unexpected type in messages.py fails at import, not in a job."""
    hint = getattr(hint, "__supertype__", hint)
    arguments = get_args(hint)
    if hint is Any or (Any in arguments and get_origin(hint) not in (tuple, dict)):
        return lambda value: value
    if hint is float:
        return _float
    if hint in (int, str, bool):
        return _exactly(hint)
    if get_origin(hint) is tuple and arguments[1:] == (...,):
        return _tuple_of(_check_for(arguments[0]))
    if get_origin(hint) is dict and arguments[0] is str:
        return _dict_of(_check_for(arguments[1]))
    if get_origin(hint) in (types.UnionType, Union):  # the latter if a NewType is part of it
        kinds = [getattr(kind, "__supertype__", kind) for kind in arguments]
        if all(kind in (int, str, bool, types.NoneType) for kind in kinds):
            return _exactly(*kinds)
    raise TypeError(f"control/wire.py cannot carry a field of type {hint}")


_CLASSES: dict[str, Callable[..., Message]] = {cls.__name__: cls for cls in get_args(Message)}
_FIELDS: dict[str, frozenset[str]] = {
    cls.__name__: frozenset(field.name for field in dataclasses.fields(cls)) for cls in get_args(Message)
}
_CHECKS: dict[str, dict[str, _Check]] = {
    cls.__name__: {field: _check_for(hint) for field, hint in get_type_hints(cls).items() if field != _ATTACHMENTS}
    for cls in get_args(Message)
}
