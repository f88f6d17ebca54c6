"""Config errors that name the key, the value and what would be valid."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any, Union

from pydantic import BaseModel, ValidationError

from wattslice.config.models import NAME_PATTERN

# What pydantic says with a regular expression, in words.
_IN_WORDS = {
    NAME_PATTERN: "valid: 1 to 64 of a-z, 0-9, - and _, the first a letter or digit",
}


class ConfigError(ValueError):
    """The campaign's config is not usable; the message lists every problem found."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def did_you_mean(value: str, valid: Iterable[str]) -> str:
    """A hint for a name that is not among the valid ones."""
    names = sorted(valid)
    near = difflib.get_close_matches(value, names, n=1, cutoff=0.6)
    listed = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return (f"did you mean {near[0]!r}? " if near else "") + f"valid: {listed or '(none defined)'}"


def key_path(location: Iterable[int | str]) -> str:
    """`('experiments', 0, 'layouts')` as `experiments[0].layouts`."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path or "(top level)"


def _models_of(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is typing.Annotated:
        return _models_of(arguments[0])
    if origin in (Union, types.UnionType, tuple, list):
        return [model for argument in arguments for model in _models_of(argument)]
    if origin is dict:
        return _models_of(arguments[1])
    return []


def _tag(model: type[BaseModel]) -> str | None:
    field = model.model_fields.get("kind")
    values = typing.get_args(field.annotation) if field else ()
    return values[0] if len(values) == 1 else None


def _fields_at(root: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """The keys that are valid at a location of the config."""
    models = [root]
    for part in location:
        if isinstance(part, int):
            continue
        known = [m for m in models if part in m.model_fields]
        if known:
            models = [n for m in known for n in _models_of(m.model_fields[part].annotation)]
        elif tagged := [m for m in models if _tag(m) == part]:  # discriminator in the location
            models = tagged
    return sorted({name for model in models for name in model.model_fields})


def _inside(location: Sequence[int | str], outer: Sequence[int | str]) -> bool:
    return len(location) > len(outer) and tuple(location[: len(outer)]) == tuple(outer)


def explain(error: ValidationError, root: type[BaseModel]) -> ConfigError:
    """Turn Pydantic's error into one line per problem."""
    problems = []
    details = error.errors(include_url=False)
    faulty = [detail["loc"] for detail in details]
    for detail in details:
        location = detail["loc"]
        if detail["type"] == "too_short" and any(_inside(other, location) for other in faulty):
            continue  # too short only for what was wrong in it
        where, value = key_path(location), detail["input"]
        shown = repr(value) if len(repr(value)) <= 80 else repr(value)[:77] + "..."
        if detail["type"] == "extra_forbidden":
            hint = did_you_mean(str(location[-1]), _fields_at(root, location[:-1]))
            problems.append(f"config key {where!r} is unknown; {hint}")
        elif detail["type"] == "missing":
            problems.append(f"config key {where!r} is missing")
        elif detail["type"] == "value_error":
            problems.append(f"config key {where!r}: {detail['ctx']['error']}")
        else:
            words = _IN_WORDS.get(detail.get("ctx", {}).get("pattern", ""), detail["msg"])
            problems.append(f"config key {where!r}: value {shown} is not valid: {words}")
    return ConfigError(problems)
