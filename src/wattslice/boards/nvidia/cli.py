"""Commands `boards`, `layouts` and `layout check`, of `python -m wattslice`.

Exit codes: 0 done, 1 no board or an impossible layout, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wattslice.boards.errors import BoardError, BoardNotFoundError, LayoutImpossibleError
from wattslice.boards.nvidia import parted_cli
from wattslice.boards.nvidia.mig import catalogue, planner
from wattslice.boards.nvidia.mig.geometry import Geometry, GiProfile, Placed
from wattslice.command import Subparsers, add_command, answer, print_json
from wattslice.config.layout import Layout, LayoutSyntaxError

if TYPE_CHECKING:
    from wattslice.boards.base import Board
    from wattslice.boards.nvidia.mig.target import Reading

OK = 0
NO = 1
USAGE = 2

_EXIT_CODES = "exit codes: 0 done, 1 no such board or impossible layout, 2 wrong usage"


def add_parser(subparsers: Subparsers) -> None:
    """Add the commands to `wattslice`'s subparsers."""
    add_command(
        subparsers,
        "boards",
        _boards,
        summary="Show the boards of this machine: identity, MIG mode, slices, sensors.",
        epilog=_epilog("boards --json"),
    )

    layouts = add_command(
        subparsers,
        "layouts",
        _layouts,
        summary="List all maximal layouts of a board with every way to place them.",
        epilog=_epilog("layouts --board a100-sxm4-80gb --json"),
    )
    _board(layouts)
    layouts.add_argument(
        "--all-profiles",
        action="store_true",
        help="also with double-memory, media (+me, -me) and graphics (+gfx) profiles",
    )

    layout = subparsers.add_parser(
        "layout",
        help="Check a layout; read and write layouts as mig-parted files.",
        description="Check a layout; read and write layouts as mig-parted files.",
        epilog="example: python -m wattslice layout check 4g+2g+1g --board h200-sxm-141gb",
    )
    actions = layout.add_subparsers(dest="layout_command", required=True)
    check = add_command(
        actions,
        "check",
        _check,
        summary="Say whether a layout can exist on a board, and where its slices lie.",
        epilog=_epilog("layout check 4g+2g+1g --board h200-sxm-141gb"),
    )
    check.add_argument("layout", metavar="LAYOUT", help="e.g. 4g+2g+1g, 2x3g, 7x1g, 1g+me+3g, full")
    _board(check)
    read = add_command(
        actions,
        "read",
        parted_cli.read,
        summary="Print what a label of a mig-parted file means on a board, as a campaign has it.",
        epilog=_epilog("layout read mig.yaml all-balanced --board h200-sxm-141gb"),
    )
    read.add_argument("file", metavar="FILE", help="mig-parted file, version v1")
    read.add_argument("label", metavar="LABEL", help="a key of mig-configs, e.g. all-balanced")
    _board(read, required=False)
    add_command(
        actions,
        "export",
        parted_cli.export,
        summary="Print the present state of this machine's boards as a mig-parted file.",
        epilog=_epilog("layout export > mig.yaml"),
        with_json=False,
    )


def _epilog(example: str) -> str:
    return f"example: python -m wattslice {example}\n{_EXIT_CODES}"


def _board(parser: argparse.ArgumentParser, required: bool = True) -> None:
    parser.add_argument(
        "--board",
        required=required,
        metavar="NAME|UUID",
        help="a board of the catalogue, e.g. a100-sxm4-80gb, or the UUID of one in this machine",
    )


# --- boards ------------------------------------------------------------------------------------


def _boards(args: argparse.Namespace) -> int:
    from wattslice.boards.cpu.board import CpuBoard
    from wattslice.boards.nvidia.board import discover

    reason = None
    found: list[dict[str, Any]] = []
    try:
        found.extend(_describe(board) for board in discover())
    except BoardNotFoundError as error:
        reason = str(error)
    except BoardError as error:
        return _fail(args, error)
    if not found and reason is None:
        reason = "no NVIDIA board: NVML lists none that this process may use"
    found.append(_describe(CpuBoard()))
    if args.json:
        print_json({"boards": found, "no_nvidia_board": reason})
        return OK
    for board in found:
        _print_board(board)
    if reason is not None:
        print(reason)
    return OK


def _describe(board: Board) -> dict[str, Any]:
    from wattslice.boards.nvidia.board import NvidiaBoard

    return {
        "identity": board.identity.model_dump(),
        "capabilities": board.capabilities().model_dump(),
        "slices": [s.model_dump() for s in board.slices()],
        "room": _room(board.reading()) if isinstance(board, NvidiaBoard) else [],
        "health": board.health().model_dump(),
    }


def _room(reading: Reading) -> list[dict[str, Any]]:
    """What fits beside the present instances, and what would have to go for the rest."""
    if not reading.mig_on:
        return []
    present = reading.placed()
    room = []
    for profile in reading.geometry.profiles:
        blocking = planner.what_to_remove(reading.geometry, present, profile)
        room.append(
            {
                "profile": str(profile),
                "fits_now": reading.capabilities.remaining.get(profile.profile_id),
                "after_removing": None if blocking is None else [str(p) for p in blocking],
            }
        )
    return room


def _print_room(room: Sequence[dict[str, Any]]) -> None:
    free = [f"{r['fits_now']} x {r['profile']}" for r in room if r["fits_now"]]
    print(f"  fits now: {', '.join(free) or 'nothing'}")
    for item in room:
        if not item["fits_now"] and item["after_removing"]:
            print(f"  {item['profile']} would fit without {', '.join(item['after_removing'])}")


def _print_board(board: dict[str, Any]) -> None:
    identity, capabilities = board["identity"], board["capabilities"]
    simulated = " (simulated)" if identity["simulated"] else ""
    print(f"{identity['name']}{simulated}  {identity['uuid']}")
    known = {
        "PCI": identity["pci_bus_id"],
        "driver": identity["driver_version"],
        "architecture": identity["architecture"],
        "memory in MiB": capabilities["memory_mib"],
    }
    print("  " + ", ".join(f"{name} {value}" for name, value in known.items() if value))
    print(f"  slices by {capabilities['partitioning']}: {_names(capabilities['profiles'])}")
    if capabilities["partitioning"] == "mig":
        print(f"  MIG {capabilities['mig_mode']}")
    energy = capabilities["energy"]
    print(f"  energy: {energy['reason'] or energy['method'] + ', scope ' + energy['scope']}")
    for item in board["slices"]:
        place = f" at {item['placement'][0]}" if item["placement"] else ""
        print(f"  slice {item['index']}: {item['profile']}{place}  {item['uuid'] or ''}".rstrip())
    if capabilities["mig_mode"] == "on" and not board["slices"]:
        print("  no slice: MIG is on, but no instance exists")
    if board["room"]:
        _print_room(board["room"])
    for process in board["health"]["foreign_processes"]:
        print(f"  in use by {process}")


def _names(profiles: Sequence[dict[str, Any]]) -> str:
    return ", ".join(p["name"] for p in profiles)


# --- layouts -----------------------------------------------------------------------------------


def _geometry(name: str) -> tuple[Geometry, tuple[str, ...]]:
    """A board's geometry and how well it is known; a UUID asks the driver."""
    if not name.startswith("GPU-"):
        board = catalogue.find(name)
        return board.geometry, board.confidence
    from wattslice.boards.nvidia.board import discover

    fitting = [b for b in discover() if b.identity.uuid.lower().startswith(name.lower())]
    if len(fitting) != 1:
        raise BoardNotFoundError(f"{len(fitting)} boards of this machine fit {name}")
    reading = fitting[0].reading()
    if not reading.geometry.profiles:
        notes = "; ".join(reading.capabilities.notes) or "it has no MIG"
        raise BoardNotFoundError(f"no profiles of board {name}: {notes}")
    return reading.geometry, (reading.geometry.source, *reading.capabilities.notes)


def _layouts(args: argparse.Namespace) -> int:
    try:
        geometry, confidence = _geometry(args.board)
    except BoardError as error:
        return _fail(args, error)
    profiles = geometry.profiles if args.all_profiles else geometry.base_profiles()
    found = planner.layouts(geometry, profiles)
    placed_sets = sum(map(len, found.values()))
    if args.json:
        print_json(
            {
                "board": geometry.board,
                "source": geometry.source,
                "confidence": list(confidence),
                "memory_slices": geometry.axis,
                "compute_slices": geometry.compute_slices,
                "profiles": [_profile(geometry, p) for p in profiles],
                "placed_sets": placed_sets,
                "layouts": [_layout(name, sets) for name, sets in found.items()],
            }
        )
        return OK
    print(
        f"{geometry.board}: {len(found)} maximal layouts, {placed_sets} with their placements, on "
        f"{geometry.axis} memory slices; known from: {', '.join(confidence)}"
    )
    for name, sets in found.items():
        compute = sum(p.profile.compute_slices for p in sets[0])
        print(f"\n{name}  ({compute} of {geometry.compute_slices} compute slices)")
        for placed in sets:
            print("    " + " ".join(map(str, placed)))
    return OK


def _profile(geometry: Geometry, profile: GiProfile) -> dict[str, Any]:
    return {
        "name": str(profile),
        "portable_name": geometry.portable_name(profile),
        "profile_id": int(profile.profile_id),
        "compute_slices": profile.compute_slices,
        "memory_slices": profile.memory_slices,
        "starts": list(profile.starts),
        "max_count": profile.max_count,
        "memory_mib": profile.memory_mib,
        "sm_count": profile.sm_count,
        "confidence": profile.confidence,
    }


def _layout(name: str, sets: Sequence[Sequence[Placed]]) -> dict[str, Any]:
    return {
        "layout": name,
        "compute_slices": sum(p.profile.compute_slices for p in sets[0]),
        "memory_slices": sum(p.profile.memory_slices for p in sets[0]),
        "placements": [[_placed(p) for p in placed] for placed in sets],
    }


def _placed(placed: Placed) -> dict[str, Any]:
    return {
        "profile": str(placed.profile),
        "start": placed.start,
        "size": placed.profile.memory_slices,
    }


# --- layout check ------------------------------------------------------------------------------


def _check(args: argparse.Namespace) -> int:
    try:
        layout = Layout.parse(args.layout)
    except LayoutSyntaxError as error:
        return _fail(args, error, code=USAGE)
    try:
        geometry, confidence = _geometry(args.board)
        plan = None if layout.slices == ("full",) else planner.plan(geometry, layout)
    except LayoutImpossibleError as error:
        if args.json:
            print_json(
                {
                    "layout": error.layout,
                    "possible": False,
                    "reason": error.reason,
                    "nearest": list(error.nearest),
                }
            )
        else:
            print(error, file=sys.stderr)
        return NO
    except BoardError as error:
        return _fail(args, error)
    instances = () if plan is None else plan.instances
    if args.json:
        print_json(
            {
                "layout": str(layout),
                "possible": True,
                "board": geometry.board,
                "source": geometry.source,
                "confidence": list(confidence),
                "notes": [] if plan is None else list(plan.aliases),
                "instances": [
                    {**_placed(i.placed), "slices": [s.name for s in i.slices]} for i in instances
                ],
            }
        )
        return OK
    where = " ".join(str(i.placed) for i in instances) or "the whole board, MIG off"
    print(f"{layout} on {geometry.board}: {where}")
    return OK


# --- output ------------------------------------------------------------------------------------


def _fail(args: argparse.Namespace, error: Exception, code: int = NO) -> int:
    answer(args, {"error": str(error)}, str(error), failed=True)
    return code
