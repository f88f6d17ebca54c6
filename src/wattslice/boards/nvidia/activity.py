"""Activity of GPU instances by NVML's GPM: counters of Hopper and later, read twice.

GPM counts a GPU instance as a whole, also where it is asked with a MIG device's handle. A slice
that is a part of an instance, or shares one, has no value of its own: that is null with a reason.

DCGM was seen to scale such counters to the wrong size, above 100 % (NVIDIA/DCGM#152) or to the
share of the smallest instance (#138, #248). So values above 1 are cut or refused, and the sum over
the instances is kept beside the board's own value, for a quality check to compare.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from wattslice.boards.activity import NO_DCGM
from wattslice.boards.nvidia import nvml
from wattslice.boards.nvidia.mig.ids import GpuInstanceId
from wattslice.boards.nvidia.nvml_errors import NvmlError, NvmlNoPermissionError, code_text
from wattslice.records.board import SliceState
from wattslice.records.run import SM_ACTIVITY, ActivityMetric, ActivityReading

METRICS: dict[int, ActivityMetric] = {
    nvml.GPM_GRAPHICS_ACTIVITY: "graphics-activity",
    nvml.GPM_SM_ACTIVITY: "sm-activity",
    nvml.GPM_SM_OCCUPANCY: "sm-occupancy",
    nvml.GPM_TENSOR_ACTIVITY: "tensor-activity",
}
# The two samples are not of the very same instant for all units, so a busy instance may come out
# slightly above 1. Beyond this the value was scaled by a wrong size, and means nothing.
MAX_OVERSHOOT = 0.02


@dataclass
class _Unit:
    """What one pair of samples is of: a GPU instance (or a board with MIG off), or the board."""

    instance: GpuInstanceId | None
    uuid: str | None  # of a MIG device in the instance
    covers: str
    slices: list[SliceState]
    first: nvml.GpmSample | None = None
    last: nvml.GpmSample | None = None
    start_s: float | None = None
    end_s: float | None = None
    why_not: str | None = None
    values: dict[int, nvml.FieldReading] = field(default_factory=dict)


class GpmActivity:
    """Activity of a board's slices; one interval, begun and ended by the caller."""

    def __init__(self, board_uuid: str, slices: Sequence[SliceState]) -> None:
        self._uuid = board_uuid
        self._slices = tuple(slices)
        self._units: list[_Unit] = []
        self._why_not: str | None = None
        self._board_sms: int | None = None

    def begin(self) -> None:
        """Take the first samples. A second call starts the interval again."""
        self._free()
        try:
            device = self._device()
            if not nvml.gpm_supported(device):
                self._why_not = (
                    f"no GPM: the board has no such counters, as all before Hopper; {NO_DCGM}"
                )
                return
        except NvmlError as error:
            self._why_not = f"no GPM: {error.reason}; {NO_DCGM}"
            return
        self._why_not = None
        sms = nvml.quantity(lambda: nvml.sm_count(device)).value
        self._board_sms = None if sms is None else int(sms)
        self._units = _units(self._slices)
        for unit in self._units:
            unit.first, unit.start_s = self._sample(device, unit)

    def end(self) -> None:
        """Take the last samples, and work out what lies between."""
        if not self._units:
            return
        try:
            device = self._device()
        except NvmlError as error:
            self._why_not = error.reason
            return
        for unit in self._units:
            if unit.first is None:
                continue
            unit.last, unit.end_s = self._sample(device, unit)
            if unit.last is None or unit.start_s is None or unit.end_s is None:
                continue
            if unit.end_s - unit.start_s < nvml.GPM_MIN_SPACING_S:
                unit.why_not = "the two samples are less than 100 ms apart"
                continue
            try:
                unit.values = unit.first.until(unit.last, list(METRICS))
            except NvmlError as error:
                unit.why_not = error.reason

    def readings(self) -> tuple[ActivityReading, ...]:
        """Readings of all slices and of the board; null with the reason where there is none."""
        if self._why_not is not None or not self._units:
            reason = self._why_not or "the window was not opened"
            source: Literal["gpm", "none"] = "none" if reason.startswith("no GPM") else "gpm"
            self._free()
            return tuple(
                ActivityReading(
                    slice_index=s.index,
                    metric=SM_ACTIVITY,
                    value=None,
                    reason=reason,
                    source=source,
                )
                for s in self._slices
            )
        *instances, board = self._units
        found = [
            _reading(unit, number, name, owner)
            for unit in instances
            for number, name in METRICS.items()
            for owner in unit.slices
        ]
        by_instances = _by_instances(instances, self._board_sms)
        for number, name in METRICS.items():
            reading = _reading(board, number, name, None)
            if name == SM_ACTIVITY:
                reading = reading.model_copy(update={"by_instances": by_instances})
            found.append(reading)
        self._free()
        return tuple(found)

    def _device(self) -> nvml.Device:
        nvml.ensure_open()
        return nvml.device_by_uuid(self._uuid)

    def _sample(
        self, device: nvml.Device, unit: _Unit
    ) -> tuple[nvml.GpmSample | None, float | None]:
        sample: nvml.GpmSample | None = None
        try:
            sample = nvml.GpmSample()
            try:
                sample.take(device, unit.instance)
            except NvmlNoPermissionError:
                if unit.uuid is None:
                    raise
                # In a container the parent may be closed, and the MIG device open.
                sample.take_of(nvml.MigDevice(nvml.any_handle_by_uuid(unit.uuid)))
        except NvmlError as error:
            unit.why_not = error.reason
            if sample is not None:
                with contextlib.suppress(NvmlError):
                    sample.free()
            return None, None
        return sample, time.monotonic()

    def _free(self) -> None:
        for unit in self._units:
            for sample in (unit.first, unit.last):
                if sample is not None:
                    with contextlib.suppress(NvmlError):
                        sample.free()
        self._units = []


def _units(slices: Sequence[SliceState]) -> list[_Unit]:
    """The instances that the slices are in, and the board as a whole."""
    by_instance: dict[int | None, _Unit] = {}
    for slice_ in slices:
        number = slice_.gpu_instance_id
        if number not in by_instance:
            instance = None if number is None else GpuInstanceId(number)
            covers = "board" if number is None else f"GPU instance {number}"
            uuid = None if number is None else slice_.uuid
            by_instance[number] = _Unit(instance, uuid, covers, [])
        by_instance[number].slices.append(slice_)
    return [*by_instance.values(), _Unit(None, None, "board", [])]


def _partial(unit: _Unit) -> str | None:
    """Why an instance's value is not that of its slice; None where the slice is the instance."""
    if len(unit.slices) > 1:
        shared = ", ".join(str(slice_.index) for slice_ in unit.slices)
        return f"GPM counts {unit.covers} as a whole, which slices {shared} share"
    # e.g. 1c.3g.40gb: one compute slice of three
    if any("c." in slice_.profile for slice_ in unit.slices):
        return f"GPM counts {unit.covers} as a whole, of which the slice is a part"
    return None


def _by_instances(units: Sequence[_Unit], board_sms: int | None) -> float | None:
    """What the instances' SM activities add up to by size, as a share of the board; None: unknown.

    Instances without a worker are not read; their activity is 0, or somebody else's, whose
    processes are reported elsewhere.
    """
    if not board_sms:
        return None
    weighed = 0.0
    for unit in units:
        value, size = unit.values.get(nvml.GPM_SM_ACTIVITY), unit.slices[0].sm_count
        if value is None or value.value is None or not size or _partial(unit):
            return None
        weighed += value.value * size
    return weighed / board_sms / 100.0


def _reading(
    unit: _Unit,
    number: int,
    name: ActivityMetric,
    owner: SliceState | None,
) -> ActivityReading:
    reading = unit.values.get(number)
    value = raw = reason = None
    notes: tuple[str, ...] = ()
    if reading is None:
        reason = unit.why_not or "no reading"
    elif reading.value is None:
        reason = f"GPM metric {number}: {code_text(reading.code)}"
    else:
        raw = reading.value / 100.0
        reason = _partial(unit) if owner is not None else None
        if reason is None and not 0.0 <= raw <= 1.0 + MAX_OVERSHOOT:  # also NaN
            reason = f"GPM gave {raw:.3f}, which is no share: scaled by a wrong size"
        if reason is None:
            value = min(raw, 1.0)
            if value != raw:
                notes = (f"{raw:.3f}, cut to 1",)
    return ActivityReading(
        slice_index=None if owner is None else owner.index,
        metric=name,
        value=value,
        raw=raw,
        reason=reason,
        notes=notes,
        source="gpm",
        covers=unit.covers,
        start_s=unit.start_s,
        end_s=unit.end_s,
    )
