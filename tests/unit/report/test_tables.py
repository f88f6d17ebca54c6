"""Numbers and tables as text."""

from __future__ import annotations

import pandas as pd
import pytest

from wattslice.report.numbers import MISSING, interval, number, with_interval
from wattslice.report.tables import Column, Table, latex_text, to_csv, to_latex, to_markdown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.2345, "1.23"),
        (0.0123456, "0.0123"),
        (123456.7, "123457"),
        (0, "0"),
        (1.0, "1.00"),
        (None, MISSING),
        (float("nan"), MISSING),
        (pd.NA, MISSING),
        (-2.5, "-2.50"),
    ],
)
def test_number(value: object, text: str) -> None:
    assert number(value) == text


def test_interval() -> None:
    assert interval(1.0, 2.0) == "1.00 to 2.00"
    assert interval(None, 2.0) == MISSING
    assert with_interval(1.5, 1.0, 2.0, 0.9, n="5 pairs", unit="×") == (
        "1.50× (90 % interval 1.00 to 2.00, 5 pairs)"
    )
    assert with_interval(1.5, 1.0, 2.0, 0.9, n="4 pairs") == "1.50 (range 1.00 to 2.00, 4 pairs)"
    assert with_interval(1.5, None, None, 0.9, n="1 pair") == "1.50 (1 pair, no interval)"


TABLE = Table(
    "t",
    "50 % of a_b",
    (Column("name"), Column("value (s)", True), Column("span", True)),
    (("a|b & c", "1.25", "1 to 2"), ("d", MISSING, MISSING), ("e", "12.5", "3 to 4")),
    ("simulated",),
)


def test_latex() -> None:
    text = to_latex(TABLE)
    assert "\\begin{tabular}{l S[table-format=2.2] r}" in text
    assert "\\caption{50 \\% of a\\_b (simulated)}" in text
    assert "    a|b \\& c & 1.25 & 1 to 2 \\\\" in text
    assert "    d & {--} & -- \\\\" in text


def test_latex_escapes() -> None:
    assert latex_text("a_b^2 ~ {x} \\ #1 $ 5%") == (
        r"a\_b\textasciicircum{}2 \textasciitilde{} \{x\} \textbackslash{} \#1 \$ 5\%"
    )


def test_markdown() -> None:
    text = to_markdown(TABLE)
    assert "50 % of a_b **(simulated)**" in text
    assert "| a\\|b & c | 1.25 | 1 to 2 |" in text
    assert "|---|---:|---:|" in text


def test_empty_table_says_so() -> None:
    empty = Table("t", "c", (Column("a"), Column("b", True)), (), empty="nothing & why")
    assert "\\multicolumn{2}{l}{nothing \\& why}" in to_latex(empty)
    assert "nothing & why" in to_markdown(empty)


def test_long_texts_break_and_long_tables_go_over_pages() -> None:
    rows = tuple((f"full/cnn.solo/fp32/rep{i}", "word " * 20, f"{i}.5") for i in range(40))
    table = Table("t", "c", (Column("run"), Column("why"), Column("value (s)", True)), rows)
    text = to_latex(table)
    assert "\\begin{longtable}" in text
    assert "\\endhead" in text
    assert "p{" in text
    assert "S[table-format=2.1]" in text
    assert "{\\shortstack{value\\\\(s)}}" in text
    assert text.count("\\begingroup") == text.count("\\endgroup") == 1


def test_csv_has_the_labels() -> None:
    lines = to_csv(TABLE).splitlines()
    assert lines[0] == "name,value (s),span,labels"
    assert lines[2] == "d,,,simulated"
