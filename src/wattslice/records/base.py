"""Base of every record, and the value that may be missing for a stated reason."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator


class Record(BaseModel):
    """An immutable record; unknown keys are refused, so a schema change is never silent."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Quantity(Record):
    """A number that was measured, or null with the reason why it was not (never 0 for that)."""

    value: float | None = None
    reason: str | None = None

    @model_validator(mode="after")
    def _null_has_a_reason(self) -> Self:
        if (self.value is None) == (self.reason is None):
            raise ValueError("a quantity has either a value or the reason why there is none")
        return self

    @classmethod
    def of(cls, value: float) -> Self:
        return cls(value=value)

    @classmethod
    def missing(cls, reason: str) -> Self:
        return cls(reason=reason)
