"""What a trace or a check found: a tree of statements, each of which holds, fails or informs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["ok", "bad", "info"]
_MARKS: dict[State, str] = {"ok": "ok   ", "bad": "FAILS", "info": "     "}
# With more runs than this, those in which everything holds take one line each.
FEW = 3


@dataclass
class Node:
    """A statement with what it rests on."""

    label: str
    text: str = ""
    state: State = "info"
    data: dict[str, Any] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)
    folds: bool = False  # may be shown in one line where everything below holds
    few: int = FEW  # of children that fold, as many are shown in full

    def add(self, label: str, text: str = "", state: State = "info", **data: Any) -> Node:
        node = Node(label, text, state, data)
        self.children.append(node)
        return node

    def holds(self) -> bool:
        return self.state != "bad" and all(child.holds() for child in self.children)

    def failures(self) -> Iterator[Node]:
        if self.state == "bad":
            yield self
        for child in self.children:
            yield from child.failures()

    def as_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"label": self.label, "state": self.state, "holds": self.holds()}
        if self.text:
            shown["text"] = self.text
        if self.data:
            shown["data"] = self.data
        if self.children:
            shown["children"] = [child.as_json() for child in self.children]
        return shown


def render(node: Node) -> str:
    """The tree as lines of text."""
    return "\n".join(_lines(node, "", ""))


def _lines(node: Node, head: str, indent: str) -> Iterator[str]:
    text = f"{node.label}: {node.text}" if node.text else node.label
    yield f"{_MARKS[node.state]} {head}{text}"
    folding = sum(child.folds for child in node.children) > node.few
    for child in node.children:
        last = child is node.children[-1]
        branch, below = ("└─ ", "   ") if last else ("├─ ", "│  ")
        if folding and child.folds and child.holds():
            yield from _lines(_folded(child), indent + branch, indent + below)
        else:
            yield from _lines(child, indent + branch, indent + below)


def _folded(node: Node) -> Node:
    return Node(node.label, f"{node.text}; everything holds", "ok")
