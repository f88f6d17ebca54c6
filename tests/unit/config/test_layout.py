from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattslice.config.layout import Layout, LayoutSyntaxError

SLICES = ["1c", "2c", "1g", "2g", "3g", "4g", "7g", "1g+me", "1g.10gb", "1g.10gb+me", "1c.3g.40gb"]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("full", "full"),
        ("full+full", "2xfull"),
        ("1c+1c", "2x1c"),
        ("1g+2g+4g", "4g+2g+1g"),
        ("3g, 1g, 1g, 2g", "3g+2g+2x1g"),
        ("1g+me+3g", "3g+1g+me"),
        ("1g.5gb.me", "1g.5gb+me"),
        ("2x3g.40gb", "2x3g.40gb"),
        ("1g.35gb+2g.35gb", "2g.35gb+1g.35gb"),
    ],
)
def test_a_layout_has_one_spelling(text: str, canonical: str) -> None:
    assert str(Layout.parse(text)) == canonical


def test_only_whole_boards_make_a_layout_of_several() -> None:
    counts = {text: Layout.parse(text).boards for text in ("full", "4xfull", "7x1g", "2x1c")}
    assert counts == {"full": 1, "4xfull": 4, "7x1g": 1, "2x1c": 1}
    with pytest.raises(LayoutSyntaxError, match="stands alone, or with its like"):
        Layout.parse("2xfull+1g")


@given(st.lists(st.sampled_from(SLICES), min_size=1, max_size=8))
def test_parsing_what_is_printed_gives_the_same_layout(slices: list[str]) -> None:
    layout = Layout.parse("+".join(slices))
    assert sorted(layout.slices) == sorted(slices)
    assert Layout.parse(str(layout)) == layout


@pytest.mark.parametrize("text", ["", "  ", "0x1g", "1x", "g", "full+1g", "0c", "3q", "1g+foo"])
def test_what_is_not_a_layout_is_refused_by_name(text: str) -> None:
    with pytest.raises(LayoutSyntaxError) as caught:
        Layout.parse(text)
    assert (
        "valid" in str(caught.value)
        or "layout" in str(caught.value)
        or repr(text) in str(caught.value)
    )
