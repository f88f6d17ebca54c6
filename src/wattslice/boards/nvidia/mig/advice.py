"""What to tell the user when a board is not as wanted and this program may not change it."""

from __future__ import annotations

from wattslice.boards.base import MigPolicy
from wattslice.boards.nvidia.mig import planner
from wattslice.boards.nvidia.mig.target import Reading
from wattslice.config.layout import Layout

# Activation statuses of a MIG mode switch (NVML return codes).
IN_USE = 19
RESET_REQUIRED = 16


def not_managed(
    uuid: str,
    policy: MigPolicy,
    layout: Layout,
    plan: planner.MigPlan | None,
    reading: Reading,
) -> str:
    """Why a layout does not hold under a policy that changes nothing, and how it could."""
    if policy == "off":
        if plan is not None:
            return (
                f"layout {layout} needs MIG, but the campaign's MIG policy is 'off'; set it to "
                "'existing' (use what is there) or 'managed' (create it)"
            )
        return (
            f"MIG is on on board {uuid}, but the campaign's MIG policy is 'off'; an administrator "
            f"can switch it off with: {commands(uuid, plan, reading)}"
        )
    return (
        f"board {uuid} has {reading.state()}, not layout {layout}; the MIG policy 'existing' "
        "changes nothing. Set it to 'managed', or have an administrator run: "
        f"{commands(uuid, plan, reading)}"
    )


def commands(uuid: str, plan: planner.MigPlan | None, reading: Reading) -> str:
    """The nvidia-smi commands that make the layout (None: `full`) by hand."""
    board, mig = f"nvidia-smi -i {uuid}", f"nvidia-smi mig -i {uuid}"
    steps = [f"{mig} -dci", f"{mig} -dgi"] if reading.instances else []
    if plan is None:
        return "; ".join([*steps, f"{board} -mig 0"])
    if not reading.mig_on:
        steps.append(f"{board} -mig 1")
    places = ",".join(f"{i.profile.profile_id}:{i.placed.start}" for i in plan.creation_order())
    return "; ".join([*steps, f"{mig} -cgi {places} -C"])


def not_permitted(uuid: str, what: str, reason: str) -> str:
    """What to ask an administrator for."""
    return (
        f"{what} of board {uuid} is not allowed ({reason}): changing MIG needs root "
        "(CAP_SYS_ADMIN), in a container also NVIDIA_MIG_CONFIG_DEVICES=all. Ask an administrator "
        "to create the layout, and set the MIG policy to 'existing'"
    )


def mode_pending(
    activation: int, *, held_by: str = "", pci: str = "", resetless: bool = False
) -> str:
    """Why a recorded MIG mode is not in force, by activation status and generation."""
    if activation == IN_USE:
        return f"the board is in use by: {held_by}"
    if activation == RESET_REQUIRED:
        return (
            "the board must be reset and cannot be from here (usually a virtual machine with the "
            "board passed through): reboot the machine, or have the host reset the board"
        )
    if resetless:
        return "this board switches without reset; see the kernel log for the cause"
    return (
        "boards of this generation need a reset: when nothing uses the board, an administrator can "
        f"run `nvidia-smi -i {pci} --gpu-reset` (with persistence mode off), or reboot"
    )
