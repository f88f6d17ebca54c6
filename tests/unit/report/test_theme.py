"""Colours can be told apart and seen in both modes."""

from __future__ import annotations

import pytest

from wattslice.report import theme


@pytest.mark.parametrize("mode", theme.MODES)
def test_contrast(mode: theme.Mode) -> None:
    background = theme.BACKGROUND[mode]
    for colour in (*theme.CATEGORY[mode], *theme.STATUS[mode]):
        assert theme.contrast(colour, background) >= 3.0, colour
    assert theme.contrast(theme.TEXT[mode], background) >= 7.0
    assert theme.contrast(theme.MUTED[mode], background) >= 4.5


def test_known_contrasts() -> None:
    assert theme.contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert theme.contrast("#777777", "#777777") == pytest.approx(1.0)


@pytest.mark.parametrize("mode", theme.MODES)
def test_config_has_both_ranges(mode: theme.Mode) -> None:
    made = theme.config(mode, background=False)
    assert made["background"] == "transparent"
    assert len(made["range"]["category"]) == 8
    assert len(made["range"]["ordinal"]) == 3
