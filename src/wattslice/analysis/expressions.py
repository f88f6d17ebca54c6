"""Arithmetic that a file of claims may hold: numbers, named values, a few functions; no code.

An expression is parsed to Python's syntax tree and only the nodes below are evaluated, so a file of
claims can compute and compare, and nothing else. Values are numpy arrays (one entry per resample)
or numbers, and every operation works on both.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_CHARACTERS = 500
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: np.divide,
}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


def _distance(value: Any, target: Any) -> Any:
    """|value / target - 1|: how far a value is from another, relative to that one."""
    return np.abs(np.divide(value, target) - 1.0)


FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {  # with the number of arguments
    "abs": (np.abs, 1),
    "log": (np.log, 1),
    "sqrt": (np.sqrt, 1),
    "min": (np.minimum, 2),
    "max": (np.maximum, 2),
    "distance": (_distance, 2),
}


class ExpressionError(ValueError):
    """An expression that is not allowed, or not understood."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression."""

    text: str
    tree: ast.expr
    names: frozenset[str]

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """Evaluate with these values; divisions by zero give infinity, logs of it NaN."""
        with np.errstate(all="ignore"):
            return _evaluate(self.tree, values)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left <op> right`. Its margin is positive where it holds: left - right, or right - left."""

    text: str
    margin: Expression
    strict: bool


def parse(text: str) -> Expression:
    """Check an arithmetic expression. Raises ExpressionError with what is not allowed."""
    tree = _tree(text)
    return Expression(text, tree, frozenset(_names(tree, text)))


def parse_comparison(text: str) -> Comparison:
    """Check `expression < expression` (or <=, >, >=). Raises ExpressionError."""
    tree = _tree(text)
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1:
        raise ExpressionError(f"{text!r} is not one comparison such as 'a > b'")
    symbol = _COMPARISONS.get(type(tree.ops[0]))
    if symbol is None:
        raise ExpressionError(f"{text!r}: compare with <, <=, > or >=")
    left, right = tree.left, tree.comparators[0]
    greater, less = (left, right) if symbol.startswith(">") else (right, left)
    difference = ast.BinOp(left=greater, op=ast.Sub(), right=less)
    names = frozenset(_names(left, text)) | frozenset(_names(right, text))
    return Comparison(text, Expression(text, difference, names), strict="=" not in symbol)


def _tree(text: str) -> ast.expr:
    if len(text) > MOST_CHARACTERS:
        raise ExpressionError(f"an expression has at most {MOST_CHARACTERS} characters")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
        raise ExpressionError(f"{text!r} is not an expression: {fault}") from fault


def _names(node: ast.expr, text: str) -> set[str]:
    """Names that an expression uses. Raises ExpressionError for anything not allowed."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            raise ExpressionError(f"{text!r}: {node.value!r} is not a number")
        return set()
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        return _names(node.operand, text)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _names(node.left, text) | _names(node.right, text)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        known = FUNCTIONS.get(node.func.id)
        if known is None:
            raise ExpressionError(
                f"{text!r}: no function {node.func.id!r}; there are {', '.join(FUNCTIONS)}"
            )
        if len(node.args) != known[1]:
            raise ExpressionError(f"{text!r}: {node.func.id} takes {known[1]} arguments")
        found: set[str] = set()
        for argument in node.args:
            found |= _names(argument, text)
        return found
    raise ExpressionError(f"{text!r}: {type(node).__name__} is not allowed here")


def _evaluate(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return values[node.id]
        case ast.UnaryOp():
            inner = _evaluate(node.operand, values)
            return -inner if isinstance(node.op, ast.USub) else inner
        case ast.BinOp():
            left, right = _evaluate(node.left, values), _evaluate(node.right, values)
            return _BINARY[type(node.op)](left, right)
        case ast.Call():
            assert isinstance(node.func, ast.Name)
            arguments = [_evaluate(argument, values) for argument in node.args]
            return FUNCTIONS[node.func.id][0](*arguments)
    raise ExpressionError(f"{type(node).__name__} is not allowed")
