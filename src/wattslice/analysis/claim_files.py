"""Files of claims: what is claimed, from which rows it is computed, and when it holds.

The form is described in docs/claims.md. A claim is data: adding one needs no code.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from wattslice import strict_yaml
from wattslice.analysis.expressions import (
    Comparison,
    Expression,
    ExpressionError,
    parse,
    parse_comparison,
)

TableName = Literal["cells", "mixes", "slices"]
Reduction = Literal[
    "max", "min", "mean", "geomean", "median", "spread", "count", "only", "spearman"
]
Text = Annotated[str, Field(min_length=1)]
# How cells of a table are told apart unless a value says otherwise.
IDENTITY: dict[str, tuple[str, ...]] = {
    "cells": ("workload", "layout", "group", "precision"),
    "mixes": ("layout", "placement", "precision"),
    "slices": ("workload", "layout", "group", "slice", "precision"),
}


class ClaimFileError(ValueError):
    """A file of claims that cannot be used; the message names the file, the claim and the key."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Range(_Model):
    """A number from `min` to `max`, both included."""

    min: float | None = None
    max: float | None = None


Scalar = str | float | bool


class Not(_Model):
    """Anything but this, or these."""

    not_: Scalar | tuple[Scalar, ...] = Field(alias="not")


Condition = Scalar | tuple[Scalar, ...] | Range | Not


class Aggregate(_Model):
    """A named value: rows of a table, maybe over other rows, reduced over cells."""

    table: TableName = "cells"
    figure: Text
    where: dict[str, Condition] = Field(default_factory=dict)
    over: dict[str, Condition] | None = Field(
        None, description="the same rows but for these conditions; gives the ratio to them"
    )
    by: tuple[str, ...] = Field((), description="columns that tell cells apart")
    having: dict[str, Range] = Field(
        default_factory=dict, description="keeps cells whose median of a figure is in a range"
    )
    reduce: Reduction = "only"
    against: str | None = Field(None, description="column that `spearman` ranks against")
    min_cells: int = Field(1, ge=1, description="fewer cells give no value")
    across_boards: bool = Field(
        False,
        description="of a ratio, whose two sides are always of one board: set the ratio beside "
        "those of other boards in the same repeat",
    )

    @property
    def identity(self) -> tuple[str, ...]:
        """Columns that tell the cells apart."""
        return self.by or IDENTITY[self.table]

    @model_validator(mode="after")
    def _only_ratios_cross_boards(self) -> Aggregate:
        if self.across_boards and self.over is None:
            raise ValueError("`across_boards` is for ratios: give `over`")
        return self

    @model_validator(mode="after")
    def _spearman_has_a_partner(self) -> Aggregate:
        if (self.reduce == "spearman") != (self.against is not None):
            raise ValueError("`reduce: spearman` and `against: COLUMN` go together")
        return self


class Tolerance(_Model):
    """How far from the published value still agrees."""

    relative: float | None = Field(None, gt=0)
    absolute: float | None = Field(None, gt=0)
    reason: Text

    @model_validator(mode="after")
    def _one(self) -> Tolerance:
        if (self.relative is None) == (self.absolute is None):
            raise ValueError("give either `relative` or `absolute`")
        return self


class Common(_Model):
    """Values that are compared over the same members only, e.g. the same workloads."""

    values: tuple[str, ...] = Field(min_length=2)
    columns: tuple[str, ...] = Field(min_length=1)


class Published(_Model):
    """The number that a source states."""

    value: float
    says: Text = Field(description="the number in the source's own terms, e.g. 'up to 33 %'")
    kind: Literal["about", "at-least", "at-most"] = "about"
    tolerance: Tolerance
    boards: tuple[str, ...] = Field(
        ("*",),
        description="names (with *) of the boards on which the number is to be found again; on "
        "others order and direction are judged alone",
    )

    @property
    def half_width(self) -> float:
        """Half of the band around the value."""
        if self.tolerance.absolute is not None:
            return self.tolerance.absolute
        assert self.tolerance.relative is not None
        return abs(self.value) * self.tolerance.relative


class Check(_Model):
    """A comparison that the claim implies."""

    test: Text
    says: Text

    @field_validator("test")
    @classmethod
    def _parses(cls, value: str) -> str:
        try:
            parse_comparison(value)
        except ExpressionError as fault:
            raise ValueError(str(fault)) from fault
        return value

    @cached_property
    def comparison(self) -> Comparison:
        """The test, parsed."""
        return parse_comparison(self.test)


class Requirement(Check):
    """A comparison without which the claim is not about this campaign; `says` why not."""


class Claim(_Model):
    """One claim."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}$")]
    source: Text = Field(description="who claims it, a key of the file's `sources`")
    title: Text
    statement: Text
    runs: Text = Field(description="which runs are needed, in words")
    formula: Text = Field(description="the claimed quantity")
    unit: str = "1"
    values: dict[str, Aggregate] = Field(default_factory=dict)
    common: Common | None = Field(None, description="values taken over the same members only")
    also: dict[str, str] = Field(default_factory=dict, description="other readings, shown only")
    published: Published | None = None
    expectation: str | None = Field(None, description="what stands in where no number is public")
    checks: tuple[Check, ...] = ()
    requires: tuple[Requirement, ...] = ()
    boards: tuple[Literal["nvidia", "cpu"], ...] = ("nvidia", "cpu")
    exact: bool = Field(False, description="counted, not measured: one repeat decides")
    scope: str | None = Field(None, description="what a reader must know to read the verdict")

    @cached_property
    def expression(self) -> Expression:
        """The formula, parsed."""
        return parse(self.formula)

    @model_validator(mode="after")
    def _whole(self) -> Claim:
        if not self.checks and self.published is None:
            raise ValueError("a claim needs `checks` or a `published` value to be judged by")
        if self.published is None and self.expectation is None:
            raise ValueError("without a `published` value say the `expectation`")
        try:
            texts = [parse(self.formula), *(parse(text) for text in self.also.values())]
        except ExpressionError as fault:
            raise ValueError(str(fault)) from fault
        names = frozenset().union(*(expression.names for expression in texts))
        for check in (*self.checks, *self.requires):
            names |= check.comparison.margin.names
        names |= set(self.common.values) if self.common else set()
        unknown = sorted(names - self.values.keys())
        if unknown:
            raise ValueError(
                f"{', '.join(unknown)}: not among the claim's values "
                f"({', '.join(sorted(self.values)) or 'none'})"
            )
        return self


class ClaimFile(_Model):
    """The content of a file of claims."""

    sources: dict[str, str]
    claims: tuple[Claim, ...]

    @model_validator(mode="after")
    def _sources_are_known(self) -> ClaimFile:
        for claim in self.claims:
            if claim.source not in self.sources:
                raise ValueError(
                    f"claim {claim.id}: source {claim.source!r} is not in `sources`: "
                    f"{', '.join(self.sources)}"
                )
        return self


def read_claims(path: Path) -> ClaimFile:
    """Read one file of claims. Raises ClaimFileError with every fault in it."""
    try:
        content: Any = strict_yaml.load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as fault:
        raise ClaimFileError(f"{path}: there is no such file of claims") from fault
    except yaml.YAMLError as fault:
        raise ClaimFileError(f"{path} is not YAML: {fault}") from fault
    try:
        return ClaimFile.model_validate(content)
    except ValidationError as fault:
        lines = [f"{path}: {_where(content, e['loc'])}: {e['msg']}" for e in fault.errors()]
        raise ClaimFileError("\n".join(dict.fromkeys(lines))) from fault


def _where(content: Any, location: tuple[int | str, ...]) -> str:
    """The place of a fault with the claim's id instead of its number."""
    parts = [str(part) for part in location]
    if len(location) > 1 and location[0] == "claims" and isinstance(location[1], int):
        try:
            name = content["claims"][location[1]]["id"]
        except (KeyError, TypeError, IndexError):
            name = str(location[1])
        parts = [f"claim {name}", *parts[2:]]
    return ".".join(parts) or "the file"


def read_all(paths: Iterable[Path]) -> tuple[dict[str, str], tuple[Claim, ...]]:
    """Sources and claims of several files. Raises ClaimFileError; an id is used once."""
    sources: dict[str, str] = {}
    claims: dict[str, Claim] = {}
    for path in paths:
        found = read_claims(path)
        sources |= found.sources
        for claim in found.claims:
            if claim.id in claims:
                raise ClaimFileError(f"{path}: the claim {claim.id} is there twice")
            claims[claim.id] = claim
    return sources, tuple(claims.values())
