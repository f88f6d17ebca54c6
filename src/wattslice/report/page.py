"""Filling the page templates: text is escaped, and a name that is not given is an error."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def fill(template: str, **values: Any) -> str:
    """Fill a template of the folder `templates`."""
    return _environment().get_template(template).render(**values)


def asset(name: str) -> Markup:
    """A style sheet or script of the folder `templates`, to be put into a page as it is."""
    return Markup((files("wattslice.report") / "templates" / name).read_text(encoding="utf-8"))


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("wattslice.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
