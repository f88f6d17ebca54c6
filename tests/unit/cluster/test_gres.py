"""From a run's slices to what its job asks SLURM for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from wattslice.cluster.gres import (
    GRES,
    Gres,
    GresError,
    all_slices,
    ask,
    has,
    parse_gres,
    type_of_all,
)

NAMES = {"1g": "1g.10gb", "2g": "2g.20gb", "3g": "3g.40gb", "full": "a100"}


@pytest.mark.parametrize(
    ("layout", "placement", "asked"),
    [
        ("full", "cnn.solo", "gpu:a100:1"),
        ("7x1g", "cnn.solo", "gpu:1g.10gb:1"),
        ("7x1g", "cnn.fill", "gpu:1g.10gb:7"),
        ("3g+2x1g", "cnn.solo.1g", "gpu:1g.10gb:1"),
        ("3g+2x1g", "cnn.solo.3g", "gpu:3g.40gb:1"),
        ("3g+2x1g", "cnn.fill", "gpu:3"),
        ("3g+2x1g", "mix.both", "gpu:3"),
        ("2x3g", "mix.both", "gpu:3g.40gb:2"),
        ("3g", "cnn.time-slice.4", "gpu:3g.40gb:1"),
        ("2x1g.12gb", "cnn.fill", "gpu:1g.12gb:2"),
        ("1g.12gb+3g", "cnn.solo.1g.12gb", "gpu:1g.12gb:1"),
        ("2x1c", "cnn.fill", ""),
    ],
)
def test_a_job_asks_for_the_slices_that_its_run_keeps_busy(layout, placement, asked) -> None:
    found = ask(SimpleNamespace(layout=layout, placement=placement), NAMES)
    assert found == asked
    assert not found or GRES.match(found)


def test_without_a_run_all_slices_of_the_layout_are_asked_for() -> None:
    assert ask(SimpleNamespace(layout="7x1g"), NAMES) == "gpu:1g.10gb:7"


@pytest.mark.parametrize(
    ("layout", "count", "kind"), [("7x1g", 7, "1g.10gb"), ("3g+2x1g", 3, ""), ("full", 1, "a100")]
)
def test_a_job_that_takes_the_board_asks_for_all_its_slices(layout, count, kind) -> None:
    run = SimpleNamespace(layout=layout, placement="cnn.solo")
    assert (all_slices(run), type_of_all(run, NAMES)) == (count, kind)


def test_a_campaign_on_cpus_asks_for_no_device() -> None:
    assert ask(SimpleNamespace(layout="full", placement="cnn.solo"), {"full": None}) == ""


def test_any_type_is_asked_for_without_one() -> None:
    assert ask(SimpleNamespace(layout="full", placement="cnn.solo"), {"full": ""}) == "gpu:1"


def test_a_slice_without_a_name_is_an_error_that_says_where_to_write_it() -> None:
    with pytest.raises(GresError, match=r"'1g\+me' has no name.*profile"):
        ask(SimpleNamespace(layout="1g+me", placement="cnn.solo"), NAMES)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "gpu:3g.40gb:1(S:0),gpu:1g.10gb:2",
            (Gres("gpu", "3g.40gb", 1), Gres("gpu", "1g.10gb", 2)),
        ),
        ("gpu:8", (Gres("gpu", None, 8),)),
        ("gpu:a100:4(S:0,2),craynetwork:4", (Gres("gpu", "a100", 4), Gres("craynetwork", None, 4))),
        ("gpu", (Gres("gpu", None, 1),)),
        ("N/A", ()),
    ],
)
def test_the_gres_of_nodes_are_read(text, found) -> None:
    assert parse_gres(text) == found


def test_a_request_without_a_type_counts_all_types() -> None:
    offered = parse_gres("gpu:3g.40gb:1,gpu:1g.10gb:2")
    assert has(offered, Gres("gpu", None, 3))
    assert not has(offered, Gres("gpu", None, 4))
    assert not has(offered, Gres("gpu", "3g.40gb", 2))
