"""Typed errors of the planner. Each says what is wrong, and what is nearest where that helps."""

from __future__ import annotations

from collections.abc import Sequence


class PlannerError(Exception):
    """The planner cannot answer."""


class TableError(PlannerError):
    """The measurements cannot be read, or lack what the request needs."""


class InfeasibleError(PlannerError):
    """No layout meets the request. `reasons` say why, `nearest` what could be had."""

    def __init__(self, reasons: Sequence[str], nearest: Sequence[str] = ()) -> None:
        lines = [f"no layout meets the request: {'; '.join(reasons)}"]
        if nearest:
            lines.append(f"nearest: {'; '.join(nearest)}")
        super().__init__("\n".join(lines))
        self.reasons = tuple(reasons)
        self.nearest = tuple(nearest)
