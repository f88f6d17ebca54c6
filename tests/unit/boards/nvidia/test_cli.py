"""The commands boards, layouts and layout check."""

import argparse
import json

import pytest
from nvidia_sim import A100, on_simulator

from wattslice.boards.nvidia import cli


def run(*arguments):
    parser = argparse.ArgumentParser(prog="wattslice")
    cli.add_parser(parser.add_subparsers(required=True))
    args = parser.parse_args(arguments)
    return args.func(args)


def test_layouts_of_a_board_as_json(capsys):
    assert run("layouts", "--board", "a100-sxm4-80gb", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["layouts"]) == 14
    assert found["placed_sets"] == 19
    assert sum(len(item["placements"]) for item in found["layouts"]) == 19
    assert found["memory_slices"] == 8
    assert "capture+doc" in found["confidence"]
    first = found["layouts"][0]
    assert first["layout"] == "7g"
    assert first["placements"] == [[{"profile": "7g.80gb", "start": 0, "size": 8}]]


def test_layouts_with_all_profiles(capsys):
    assert run("layouts", "--board", "a100-sxm4-80gb", "--all-profiles", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["layouts"]) == 64


def test_layouts_as_text(capsys):
    assert run("layouts", "--board", "A30") == 0
    out = capsys.readouterr().out
    assert "4 maximal layouts, 5 with their placements, on 4 memory slices" in out
    assert "2g.12gb@0 1g.6gb@2 1g.6gb@3" in out


def test_an_unknown_board_is_exit_code_1(capsys):
    assert run("layouts", "--board", "a100-sxm4-80") == 1
    assert "did you mean a100-sxm4-80gb" in capsys.readouterr().err
    assert run("layouts", "--board", "a100-sxm4-80", "--json") == 1
    assert "did you mean" in json.loads(capsys.readouterr().out)["error"]


def test_a_possible_layout_is_shown_with_its_places(capsys):
    assert run("layout", "check", "4g+2g+1g", "--board", A100) == 0
    assert "4g.40gb@0 2g.20gb@4 1g.10gb@6" in capsys.readouterr().out
    assert run("layout", "check", "full", "--board", A100, "--json") == 0
    assert json.loads(capsys.readouterr().out)["instances"] == []


@pytest.mark.parametrize("layout", ["4g+2g+2g", "4g+2g+1g+1g+1g"])
def test_a_published_layout_that_cannot_exist_is_exit_code_1_with_the_reason(layout, capsys):
    assert run("layout", "check", layout, "--board", A100, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["possible"]
    assert "the board has 7" in found["reason"]
    assert "4g+2g+1g" in found["nearest"]
    assert run("layout", "check", layout, "--board", A100) == 1
    assert "nearest possible" in capsys.readouterr().err


def test_what_is_no_layout_is_wrong_usage(capsys):
    assert run("layout", "check", "4g+banana", "--board", A100) == 2
    with pytest.raises(SystemExit, match="2"):
        run("layout", "check", "4g")
    with pytest.raises(SystemExit, match="2"):
        run("layouts")
    capsys.readouterr()


@pytest.mark.parametrize("command", [["boards"], ["layouts"], ["layout"], ["layout", "check"]])
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        run(*command, "--help")
    assert "example: python -m wattslice" in capsys.readouterr().out


@on_simulator("a100-sxm4-80gb,a30")
def test_boards_shows_what_is_here(sim):
    import contextlib
    import io

    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert run("boards") == 0
        assert run("layouts", "--board", sim.uuid(1)) == 0
        assert run("layout", "check", "4g", "--board", sim.uuid(1)) == 0
    assert "NVIDIA A100-SXM4-80GB (simulated)" in text.getvalue()
    assert "MIG is on, but no instance exists" in text.getvalue()
    assert "known from: driver" in text.getvalue()
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert run("boards", "--json") == 0
    found = json.loads(text.getvalue())["boards"]
    assert [b["identity"]["uuid"] for b in found[:2]] == [sim.uuid(0), sim.uuid(1)]
    assert [b["identity"]["kind"] for b in found] == ["nvidia", "nvidia", "cpu"]


@on_simulator()
def test_boards_without_nvidia_shows_the_cpu_and_says_why(sim):
    import contextlib
    import io

    sim.fault("nvmlInit*", 18)
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert run("boards", "--json") == 0
    found = json.loads(text.getvalue())
    assert [b["identity"]["kind"] for b in found["boards"]] == ["cpu"]
    assert "LIB_RM_VERSION_MISMATCH (18)" in found["no_nvidia_board"]
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert run("boards") == 0
    assert "reload the module or reboot" in text.getvalue()


@on_simulator()
def test_dra_933_boards_says_what_fits_and_what_is_in_the_way(sim):
    import contextlib
    import io

    from wattslice.boards.nvidia.board import NvidiaBoard
    from wattslice.config.layout import Layout

    NvidiaBoard(sim.uuid(), "managed").ensure(Layout.parse("3g+2g"))
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert run("boards") == 0
    assert "fits now: 2 x 1g.10gb, 1 x 2g.20gb, 1 x 1g.10gb+me, 1 x 1g.20gb" in text.getvalue()
    assert "3g.40gb would fit without 2g.20gb@0" in text.getvalue()
    assert "7g.80gb would fit without" in text.getvalue()
