"""Which devices a process may see: from CUDA_VISIBLE_DEVICES and its relatives to boards.

The rules are those of the CUDA driver as its documentation and PyTorch's own parser describe them:
entries up to the first invalid one count, kinds are not mixed, a repeated entry empties the list,
and a UUID may be cut short as long as it is unique.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from wattslice.boards.errors import BoardError
from wattslice.boards.nvidia import nvml
from wattslice.boards.nvidia.mig.capabilities import read_capabilities
from wattslice.boards.nvidia.mig.geometry import GiProfile
from wattslice.boards.nvidia.mig.ids import ComputeInstanceId, GpuInstanceId
from wattslice.boards.nvidia.mig.state import read_instances
from wattslice.boards.nvidia.nvml_errors import NvmlError

# In order of precedence. CUDA obeys the first alone; the others say what a scheduler or container
# meant to give, and are asked when it is not set.
VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "SLURM_STEP_GPUS",
    "SLURM_JOB_GPUS",
    "NVIDIA_VISIBLE_DEVICES",
)
_HOST_NUMBERED = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
_NOTHING = ("", "-1", "NoDevFiles", "none", "void")
_OLD_MIG = re.compile(r"^MIG-(GPU-[0-9a-fA-F-]+)/(\d+)/(\d+)$")
_LEADING_INT = re.compile(r"^[+-]?\d+")


class ResolveError(BoardError):
    """The variable does not say which device is meant, and guessing would be wrong."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG device: one compute instance of a GPU instance."""

    uuid: str
    gpu_instance_id: GpuInstanceId
    compute_instance_id: ComputeInstanceId
    profile: str
    sm_count: int | None = None
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Present:
    """A board as the resolver needs to know it, in PCI order."""

    uuid: str
    name: str
    mig_on: bool = False
    minor: int | None = None
    sm_count: int | None = None
    memory_mib: int | None = None
    instances: tuple[Instance, ...] = ()


@dataclass(frozen=True, slots=True)
class Visible:
    """A device that a process may use, and what shares its board."""

    board: Present
    instance: Instance | None  # None: the whole board
    entry: str  # what named it
    siblings: tuple[Instance, ...] = ()

    @property
    def uuid(self) -> str:
        return self.board.uuid if self.instance is None else self.instance.uuid


@dataclass(frozen=True, slots=True)
class Resolution:
    """All devices of a process; `notes` say what of the variable was not obeyed, and why."""

    devices: tuple[Visible, ...]
    variable: str | None  # that decided; None: nothing was set
    notes: tuple[str, ...] = ()

    @property
    def boards(self) -> tuple[Present, ...]:
        """The boards behind the devices, each once: energy is counted per board."""
        return tuple({v.board.uuid: v.board for v in self.devices}.values())


def resolve(environ: Mapping[str, str], present: Sequence[Present]) -> Resolution:
    """The devices that a process with this environment may use.

    Raises ResolveError where the variable names nothing that exists, or where its numbers could
    mean different boards.
    """
    variable = next((name for name in VARIABLES if name in environ), None)
    if variable is None:
        return Resolution(tuple(v for b in present for v in _first_of(b, "")), None)
    text = environ[variable].strip()
    if text in _NOTHING:
        return Resolution((), variable)
    if variable == "NVIDIA_VISIBLE_DEVICES":
        if text == "all":
            return Resolution(tuple(v for b in present for v in _first_of(b, "all")), variable)
        # The container runtime has obeyed it: what it numbered by the host is renumbered inside.
        if not text.startswith(("GPU-", "MIG-")):
            note = f"{variable}={text} numbers the host's boards; all that are visible are taken"
            devices = tuple(v for b in present for v in _first_of(b, text))
            return Resolution(devices, variable, (note,))
    entries = [entry.strip() for entry in text.split(",")]
    notes: list[str] = []
    if entries[0].startswith(("GPU-", "MIG-")):
        devices = _by_uuid(entries, present, notes)
    else:
        devices = _by_number(entries, _numbering(variable, environ, present, entries), notes)
    if not devices:
        listed = "; ".join(f"{i}: {b.uuid}" for i, b in enumerate(present)) or "no board"
        why = "; ".join(notes) or "nothing in it names a device"
        raise ResolveError(f"{variable}={text} gives no device ({why}); there are: {listed}")
    return Resolution(devices, variable, tuple(notes))


def _by_uuid(
    entries: Sequence[str], present: Sequence[Present], notes: list[str]
) -> tuple[Visible, ...]:
    prefix = entries[0][:4]
    found: list[Visible] = []
    for entry in entries:
        if not entry.startswith(prefix):
            notes.append(f"{entry!r} is of another kind than the first entry; the list ends there")
            break
        match = _one_by_uuid(entry, present, notes)
        if match is None:
            break
        if any(v.uuid == match.uuid for v in found):
            notes.append(f"{entry!r} is named twice, which leaves no device")
            return ()
        found.append(match)
    return tuple(found)


def _one_by_uuid(entry: str, present: Sequence[Present], notes: list[str]) -> Visible | None:
    old = _OLD_MIG.match(entry)
    if old is not None:
        wanted = (old[1].lower(), int(old[2]), int(old[3]))
        matches = [
            _visible(board, instance, entry)
            for board in present
            for instance in board.instances
            if (
                board.uuid.lower(),
                int(instance.gpu_instance_id),
                int(instance.compute_instance_id),
            )
            == wanted
        ]
    else:
        key = entry.lower()
        matches = [_visible(b, None, entry) for b in present if b.uuid.lower().startswith(key)]
        matches += [
            _visible(board, instance, entry)
            for board in present
            for instance in board.instances
            if instance.uuid.lower().startswith(key)
        ]
    if len(matches) != 1:
        what = "fits no device" if not matches else f"fits {len(matches)} devices"
        notes.append(f"{entry!r} {what}; the list ends there")
        return None
    match = matches[0]
    if match.instance is None and match.board.mig_on:
        first = _first_of(match.board, entry)
        if not first:
            notes.append(f"{entry!r} is in MIG mode and has no instance; the list ends there")
            return None
        notes.append(f"{entry!r} is in MIG mode: CUDA gives its first instance")
        return first[0]
    return match


def _by_number(
    entries: Sequence[str], boards: Mapping[int, Present], notes: list[str]
) -> tuple[Visible, ...]:
    found: list[Visible] = []
    seen: set[int] = set()
    for entry in entries:
        # CUDA reads the number at the start and ignores what follows it.
        number = int(match[0]) if (match := _LEADING_INT.match(entry)) else -1
        if number in seen:
            notes.append(f"{number} is named twice, which leaves no device")
            return ()
        board = boards.get(number)
        if number < 0 or board is None:
            if entry != "-1":
                notes.append(f"{entry!r} is no device number here; the list ends there")
            break
        seen.add(number)
        first = _first_of(board, entry)
        if not first:
            notes.append(f"board {number} is in MIG mode and has no instance")
            break
        if board.mig_on:
            notes.append(f"board {number} is in MIG mode: CUDA gives its first instance")
        found.extend(first)
    return tuple(found)


def _numbering(
    variable: str, environ: Mapping[str, str], present: Sequence[Present], entries: Sequence[str]
) -> dict[int, Present]:
    if variable in _HOST_NUMBERED:
        if len(entries) == len(present):
            # The job's device cgroup shows its own boards only: they come in the same order.
            numbers = [int(e) if e.isdigit() else -1 for e in entries]
            return dict(zip(sorted(numbers), present, strict=True))
        by_minor = {b.minor: b for b in present if b.minor is not None}
        return {int(e): by_minor[int(e)] for e in entries if e.isdigit() and int(e) in by_minor}
    by_order = environ.get("CUDA_DEVICE_ORDER", "FASTEST_FIRST") == "PCI_BUS_ID"
    if not by_order and len({b.name for b in present}) > 1:
        raise ResolveError(
            f"{variable}={environ[variable]}: CUDA numbers different boards by speed, not in PCI "
            "order; set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name boards by UUID"
        )
    return dict(enumerate(present))


def _first_of(board: Present, entry: str) -> tuple[Visible, ...]:
    """What CUDA gives for a board: itself, or in MIG mode its first instance, if it has one."""
    if not board.mig_on:
        return (_visible(board, None, entry),)
    return tuple(_visible(board, instance, entry) for instance in board.instances[:1])


def _visible(board: Present, instance: Instance | None, entry: str) -> Visible:
    siblings = tuple(i for i in board.instances if instance is None or i.uuid != instance.uuid)
    return Visible(board, instance, entry, siblings)


def against_allocation(environ: Mapping[str, str], present: Sequence[Present]) -> tuple[str, ...]:
    """Devices that a SLURM job uses without having been given them, in words; empty if none.

    To be checked before training: a wrong device under SLURM shows as an allocator's assertion.
    """
    given = {k: environ[k] for k in _HOST_NUMBERED if k in environ}
    if not given or "CUDA_VISIBLE_DEVICES" not in environ:
        return ()
    allowed = {b.uuid for b in resolve(given, present).boards}
    used = resolve({k: v for k, v in environ.items() if k not in given}, present)
    return tuple(
        f"{v.entry or v.uuid} is on board {v.board.uuid}, which is not in the job's allocation "
        f"({', '.join(f'{k}={v}' for k, v in given.items())})"
        for v in used.devices
        if v.board.uuid not in allowed
    )


def read_present() -> tuple[Present, ...]:
    """The boards of this host with their instances, by NVML. Needs no privilege."""
    nvml.ensure_open()
    return tuple(_read_board(device) for _, device in nvml.devices())


def _read_board(device: nvml.Device) -> Present:
    board = Present(uuid=nvml.uuid(device), name=nvml.name(device))
    memory = nvml.quantity(lambda: nvml.memory(device).total_mib).value
    minor = nvml.quantity(lambda: nvml.minor_number(device)).value
    sms = nvml.quantity(lambda: nvml.sm_count(device)).value
    board = replace(
        board,
        memory_mib=None if memory is None else int(memory),
        minor=None if minor is None else int(minor),
        sm_count=None if sms is None else int(sms),
    )
    try:
        capabilities = read_capabilities(device)
        if capabilities.mode is None or not capabilities.mode.current:
            return board
        found = read_instances(device, capabilities.geometry)
    except NvmlError:
        return board
    instances = [
        Instance(
            uuid=ci.uuid,
            gpu_instance_id=gi.gi_id,
            compute_instance_id=ci.ci_id,
            profile=_profile_text(gi.profile, ci.compute_slices),
            sm_count=ci.sm_count,
            memory_mib=gi.memory_mib,
        )
        for gi in found
        for ci in gi.compute_instances
        if ci.uuid is not None
    ]
    instances.sort(key=lambda i: (i.gpu_instance_id, i.compute_instance_id))
    return replace(board, mig_on=True, instances=tuple(instances))


def _profile_text(profile: GiProfile | None, ci_slices: int) -> str:
    if profile is None:
        return f"{ci_slices}c"
    if profile.compute_slices == ci_slices:
        return str(profile)
    return str(replace(profile.name, ci_slices=ci_slices))
