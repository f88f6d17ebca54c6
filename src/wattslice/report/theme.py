"""One look for every figure and for the page: colour-blind-safe, light and dark.

Precisions and slots take their colours in order from `range.category` of the config, so a spec
holds no colour and the same spec serves both modes. The hues are Okabe and Ito's, darkened (light
mode) or lightened (dark mode) until each has a contrast of 3:1 or more with the background; a
second cue (shape, position) always goes with colour.
"""

from __future__ import annotations

from typing import Any, Literal

Mode = Literal["light", "dark"]
MODES: tuple[Mode, ...] = ("light", "dark")

FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"

CATEGORY: dict[Mode, tuple[str, ...]] = {
    "light": (
        "#0072b2",
        "#a3527e",
        "#008560",
        "#c65300",
        "#7a6400",
        "#3a7ca5",
        "#5b4b8a",
        "#606060",
    ),
    "dark": (
        "#6cbcf0",
        "#e5a3c6",
        "#3fcfa0",
        "#ff9a52",
        "#e8d84a",
        "#9ad0e6",
        "#b9a8ee",
        "#b8b8b8",
    ),
}
STATUS: dict[Mode, tuple[str, ...]] = {  # all, some, none of a cell's runs were measured
    "light": ("#008560", "#b8860b", "#b3261e"),
    "dark": ("#3fcfa0", "#e8c34a", "#ff8a80"),
}
BACKGROUND: dict[Mode, str] = {"light": "#ffffff", "dark": "#14181d"}
TEXT: dict[Mode, str] = {"light": "#1b1f24", "dark": "#e6e9ed"}
MUTED: dict[Mode, str] = {"light": "#57606a", "dark": "#a5adb7"}
GRID: dict[Mode, str] = {"light": "#e3e6ea", "dark": "#2d333b"}


def contrast(one: str, other: str) -> float:
    """Contrast of two #rrggbb colours by WCAG 2, from 1 (equal) to 21 (black on white)."""

    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def config(mode: Mode, *, background: bool = True) -> dict[str, Any]:
    """The Vega-Lite config of a mode. `background=False` leaves the page's own to be seen."""
    text, muted, grid = TEXT[mode], MUTED[mode], GRID[mode]
    return {
        "background": BACKGROUND[mode] if background else "transparent",
        "font": FONT,
        "padding": 8,
        "range": {"category": list(CATEGORY[mode]), "ordinal": list(STATUS[mode])},
        "view": {"stroke": grid},
        "title": {
            "anchor": "start",
            "color": text,
            "fontSize": 15,
            "fontWeight": 600,
            "subtitleColor": muted,
            "subtitleFontSize": 12,
            "subtitlePadding": 4,
            "offset": 12,
        },
        "axis": {
            "labelColor": text,
            "titleColor": muted,
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
            "gridColor": grid,
            "domainColor": muted,
            "tickColor": muted,
            "labelLimit": 210,
            "maxExtent": 260,  # room for the longest label, so that the title stands clear of it
            "labelFlush": False,
            "labelOverlap": "greedy",
        },
        "axisQuantitative": {"tickCount": 5},
        "axisBand": {"labelOverlap": False},
        "header": {
            "labelColor": text,
            "labelFontSize": 12,
            "labelFontWeight": 600,
            "labelAnchor": "start",
            "title": None,
        },
        "legend": {
            "labelColor": text,
            "titleColor": muted,
            "titleFontWeight": "normal",
            "labelFontSize": 11,
            "titleFontSize": 11,
            "orient": "top",
            "direction": "horizontal",
            "columns": 3,
            "labelLimit": 180,
        },
        "point": {"filled": True},
        "text": {"color": text, "fontSize": 11},
        "rule": {"color": muted},
        "line": {"strokeWidth": 1.2},
    }
