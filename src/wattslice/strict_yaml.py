"""YAML in which a key that is given twice is an error (PyYAML keeps the last one silently)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import yaml


class DuplicateKeyError(yaml.YAMLError):
    """A mapping has a key twice; the message names the key and the line of the mapping."""


class _Loader(yaml.SafeLoader):
    """The safe loader with checked mappings."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    # Before a merge key (<<) is resolved: a key may replace one that is merged in.
    own = (key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge")
    counts = Counter(loader.construct_object(key) for key in own)
    loader.flatten_mapping(node)
    twice = ", ".join(repr(str(key)) for key, n in counts.items() if n > 1)
    if twice:
        line = node.start_mark.line + 1
        raise DuplicateKeyError(f"key {twice} is given twice (mapping at line {line})")
    return {
        loader.construct_object(key, deep=True): loader.construct_object(value, deep=True)
        for key, value in node.value
    }


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def load(text: str) -> Any:
    """The value of a YAML text. Raises yaml.YAMLError, for a key given twice DuplicateKeyError."""
    return yaml.load(text, Loader=_Loader)
