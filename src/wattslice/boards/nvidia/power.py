"""A board's sensors over NVML. NVML has no power or energy of a MIG instance: all is the board's.

A MIG handle answers such questions with an error or with its parent's number, depending on the
driver. So they are put to the board only, and what the number covers is stated with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from wattslice.boards.base import BoardLostError, Sample
from wattslice.boards.nvidia import nvml
from wattslice.boards.nvidia.identity import is_superchip
from wattslice.boards.nvidia.nvml_errors import NvmlError, code_text
from wattslice.records.board import EnergyCapability, EnergyScope

# Codes after which nothing more will be read: uninitialised, driver gone, board lost, reset due.
_LOST = frozenset({1, 9, 15, 16, 18})

# Clocks, temperature, utilisation and event reasons change slowly and cost a call each: they are
# read once a second, so that the driver's lock stays free and the meter costs little.
_SLOW_PERIOD_S = 0.95

_SCOPES: tuple[tuple[int, EnergyScope], ...] = (
    (nvml.SCOPE_GPU, "board"),
    (nvml.SCOPE_MODULE, "module"),
)


@dataclass(frozen=True, slots=True)
class SensorFacts:
    """What is published about a generation's power sensor; None where nothing is."""

    instant: str
    average: str
    plain_call: str
    update_period_s: float | None
    window_s: float | None  # of each update period, what the sensor sees
    tolerance: str
    source: str


_YANG = "Yang, Adamek, Armour, arXiv 2312.02741 (SC24)"
_HEADER = "nvml.h, API 13"
_ERROR = (
    "single cards were -8 % to +13 % off an external meter, mostly by a constant factor "
    f"({_YANG}); the header states 5 W for some boards"
)


def sensor_facts(architecture: str | None, capability: tuple[int, int] | None) -> SensorFacts:
    """What the power readings of a generation mean, with the source."""
    if capability == (8, 0):  # GA100: A100, A30
        return SensorFacts(
            "25 ms of every 100 ms",
            "not on GA100",
            "as the instant field",
            0.101,
            0.025,
            _ERROR,
            f"{_HEADER}; {_YANG}",
        )
    if architecture == "hopper":
        return SensorFacts(
            "about 25 ms of every 100 ms",
            "mean of 1 s",
            "mean of 1 s",
            0.100,
            0.0226,
            _ERROR,
            f"{_HEADER}; {_YANG} for H100 PCIe; other Hopper boards taken to be alike",
        )
    if architecture == "volta":
        return SensorFacts(
            "half of every 20 ms",
            "not on Volta",
            "as the instant field",
            0.020,
            0.0107,
            _ERROR,
            f"{_HEADER}; {_YANG} for V100",
        )
    return SensorFacts("not published", "mean of 1 s", "mean of 1 s", None, None, _ERROR, _HEADER)


@dataclass(frozen=True, slots=True)
class _Probe:
    """Which readings a board gives, found out once by calling."""

    scope: EnergyScope
    instant: tuple[int, int] | None  # (field, scope)
    average: tuple[int, int] | None
    energy: tuple[int, int] | None
    plain_power: bool  # the plain call instead of a field
    plain_energy: bool
    slow: tuple[str, ...]
    missing: Mapping[str, str]  # reading -> why it is not had

    @property
    def has_power(self) -> bool:
        return self.instant is not None or self.average is not None or self.plain_power

    @property
    def has_energy(self) -> bool:
        return self.energy is not None or self.plain_energy

    @property
    def method(self) -> str:
        if self.has_energy:
            return "nvml-counter"
        return "nvml-power" if self.has_power else "none"


_PLAIN: dict[str, Callable[[nvml.Device], float]] = {
    "power_w": nvml.power_w,
    "energy_j": nvml.energy_j,
}
_SLOW: dict[str, Callable[[nvml.Device], float]] = {
    "temperature_c": nvml.temperature_c,
    "sm_clock_mhz": nvml.sm_clock_mhz,
    "memory_clock_mhz": nvml.memory_clock_mhz,
    "utilisation": nvml.utilisation,
    "event_reasons": nvml.event_reasons,
}
_CALLS = _PLAIN | _SLOW


def _probe(device: nvml.Device) -> _Probe:
    missing: dict[str, str] = {}
    codes: dict[tuple[int, int], int] = {}
    wanted = [
        (field, scope)
        for field in (
            nvml.FIELD_POWER_INSTANT,
            nvml.FIELD_POWER_AVERAGE,
            nvml.FIELD_TOTAL_ENERGY,
            nvml.FIELD_ENERGY,
        )
        for scope, _ in _SCOPES
    ]
    try:
        codes = {(r.field, r.scope): r.code for r in nvml.field_values(device, wanted)}
    except NvmlError as error:
        missing["fields"] = error.reason

    def first(fields: tuple[int, ...], scope: int) -> tuple[int, int] | None:
        return next(((f, scope) for f in fields if codes.get((f, scope)) == 0), None)

    number, scope = _SCOPES[0]
    for candidate, name in _SCOPES:
        if first((nvml.FIELD_POWER_INSTANT, nvml.FIELD_POWER_AVERAGE), candidate):
            number, scope = candidate, name
            break
    instant = first((nvml.FIELD_POWER_INSTANT,), number)
    average = first((nvml.FIELD_POWER_AVERAGE,), number)
    plain_power = instant is None and average is None and _answers("power_w", device, missing)
    energy = first((nvml.FIELD_TOTAL_ENERGY, nvml.FIELD_ENERGY), number)
    if energy is None and number == nvml.SCOPE_MODULE:
        # Field 83 knows no scopes on some drivers: it then counts what the board has, the module.
        energy = first((nvml.FIELD_TOTAL_ENERGY,), nvml.SCOPE_GPU)
    plain_energy = energy is None and _answers("energy_j", device, missing)
    for label, field, chosen in (
        ("power_w", nvml.FIELD_POWER_INSTANT, instant),
        ("power_average_w", nvml.FIELD_POWER_AVERAGE, average),
    ):
        if chosen is None:
            code = codes.get((field, number))
            missing.setdefault(label, f"field {field}: {code_text(code)}" if code else "no fields")
    if plain_power:
        missing["power_w"] += "; the plain power call is read instead"
    slow = tuple(name for name in _SLOW if _answers(name, device, missing))
    return _Probe(scope, instant, average, energy, plain_power, plain_energy, slow, missing)


def _answers(name: str, device: nvml.Device, missing: dict[str, str]) -> bool:
    try:
        _CALLS[name](device)
    except NvmlError as error:
        if error.code in _LOST:
            raise BoardLostError(str(error)) from error
        missing[name] = error.reason
        return False
    return True


def energy_capability(device: nvml.Device) -> EnergyCapability:
    """Whether energy can be had. Support means that the call succeeded, not that it was > 0."""
    try:
        probe = _probe(device)
    except BoardLostError as error:
        return EnergyCapability(scope=None, method=None, reason=str(error))
    if not probe.has_power and not probe.has_energy:
        why = "; ".join(f"{name}: {reason}" for name, reason in probe.missing.items())
        return EnergyCapability(
            scope=None, method=None, reason=f"NVML gives neither power nor energy ({why})"
        )
    return EnergyCapability(scope=probe.scope, method=probe.method)


class NvmlReading(NamedTuple):
    """One round of calls: what they gave, and when (CLOCK_MONOTONIC, s)."""

    source: NvmlPowerSource
    raw: bytes | NvmlError | None  # the fields' memory, or why the call as a whole failed
    others: Mapping[str, float | NvmlError]  # had by calls of their own
    begin_s: float
    middle_s: float  # power and energy were had
    end_s: float

    def sample(self) -> Sample:
        """`t_s` is the middle of the power and energy calls; `call_s` is all calls together."""
        values: dict[str, float] = {}
        errors: list[str] = []
        for name, (code, value) in self.source.field_values(self.raw).items():
            if value is None:
                errors.append(f"{name}: {code_text(code)}")
            else:
                values[name] = value / 1000.0  # mW, mJ
        for name, found in self.others.items():
            if isinstance(found, NvmlError):
                errors.append(f"{name}: {code_text(found.code)}")
            else:
                values[name] = found
        reasons = values.pop("event_reasons", None)
        return Sample(
            t_s=(self.begin_s + self.middle_s) / 2,
            call_s=self.end_s - self.begin_s,
            event_reasons=None if reasons is None else int(reasons),
            error="; ".join(errors) or None,
            **values,
        )


class NvmlPowerSource:
    """Reads one board; opened, read and closed in the sampler's own thread."""

    def __init__(self, uuid: str, board_name: str) -> None:
        self._uuid = uuid
        self._name = board_name
        self._device: nvml.Device | None = None
        self._probed: _Probe | None = None
        self._slow_due_s = float("-inf")
        self._plain: tuple[str, ...] = ()
        self._names: tuple[str, ...] = ()
        self._fields: nvml.PreparedFields | None = None

    @property
    def scope(self) -> EnergyScope:
        return self._probe().scope

    @property
    def method(self) -> str:
        return self._probe().method

    def _probe(self) -> _Probe:
        if self._probed is None:
            nvml.ensure_open()
            self._probed = _probe(nvml.device_by_uuid(self._uuid))
        return self._probed

    def describe(self) -> Mapping[str, object]:
        """Fields read, what they mean on this generation, and what is missing with the reason."""
        probe = self._probe()
        device = nvml.device_by_uuid(self._uuid)
        facts = sensor_facts(_architecture(device), _capability(device))
        covers = "the GPU with its memory, not the host"
        if probe.scope == "module":
            covers = "the whole superchip module: GPU, CPU and their memory"
        elif is_superchip(self._name):
            covers += (
                "; on superchips the energy counter was reported to cover the module: compare it "
                "with the integral of power"
            )
        return {
            "api": "NVML",
            "scope": probe.scope,
            "covers": covers,
            "power_w": _source(probe.instant, probe.plain_power, "nvmlDeviceGetPowerUsage"),
            "power_average_w": _source(probe.average, False, ""),
            "energy_j": _source(
                probe.energy, probe.plain_energy, "nvmlDeviceGetTotalEnergyConsumption"
            ),
            "power_w_meaning": facts.plain_call if probe.plain_power else facts.instant,
            "power_average_w_meaning": facts.average,
            "update_period_s": facts.update_period_s,
            "sensor_window_s": facts.window_s,
            "tolerance": facts.tolerance,
            "source": facts.source,
            "slow_period_s": _SLOW_PERIOD_S,
            "mig_handle": _mig_handle_answers(device),
            "missing": dict(probe.missing),
        }

    def open(self) -> None:
        """Find the board and its readings. Raises BoardLostError when it does not answer."""
        try:
            nvml.ensure_open()
            self._device = nvml.device_by_uuid(self._uuid)
            self._probed = _probe(self._device)
            named = {
                "power_w": self._probed.instant,
                "power_average_w": self._probed.average,
                "energy_j": self._probed.energy,
            }
            fields = {name: field for name, field in named.items() if field is not None}
            plain = {"power_w": self._probed.plain_power, "energy_j": self._probed.plain_energy}
            self._plain = tuple(name for name, wanted in plain.items() if wanted)
            self._names = tuple(fields)
            self._fields = (
                nvml.PreparedFields(self._device, list(fields.values())) if fields else None
            )
        except NvmlError as error:
            raise BoardLostError(f"board {self._uuid}: {error}") from error

    def close(self) -> None:
        self._device = None

    def read(self) -> NvmlReading:
        """Read power and energy, and once a second what changes slowly.

        Raises BoardLostError where a call says that nothing more will come, and within a second
        where a single field says so.
        """
        device, fields = self._device, self._fields
        if device is None:
            raise BoardLostError(f"board {self._uuid}: its sensors are not open")
        raw: bytes | NvmlError | None = None
        others: dict[str, float | NvmlError] = {}
        begin = time.monotonic()
        if fields is not None:
            try:
                raw = fields.read()
            except NvmlError as error:
                self._check_lost(error.code, error.call)
                raw = error
        if self._plain:
            others |= self._read_each(self._plain, device)
        middle = end = time.monotonic()
        if begin >= self._slow_due_s:
            self._slow_due_s = begin + _SLOW_PERIOD_S
            others |= self._read_each(self._probe().slow, device)
            end = time.monotonic()
            for name, (code, _) in self.field_values(raw).items():
                self._check_lost(code, name)
        return NvmlReading(self, raw, others, begin, middle, end)

    def field_values(self, raw: bytes | NvmlError | None) -> dict[str, tuple[int, float | None]]:
        """Return code and value (mW, mJ) of each field, from what `read` had of them."""
        if isinstance(raw, NvmlError):
            return dict.fromkeys(self._names, (raw.code, None))
        if self._fields is None or raw is None:
            return {}
        return dict(zip(self._names, self._fields.values(raw), strict=True))

    def _read_each(self, names: Iterable[str], device: nvml.Device) -> dict[str, float | NvmlError]:
        found: dict[str, float | NvmlError] = {}
        for name in names:
            try:
                found[name] = _CALLS[name](device)
            except NvmlError as error:
                self._check_lost(error.code, error.call)
                found[name] = error
        return found

    def _check_lost(self, code: int, what: str) -> None:
        if code in _LOST:
            raise BoardLostError(f"board {self._uuid} no longer answers: {what}: {code_text(code)}")


def _source(field: tuple[int, int] | None, plain: bool, call: str) -> str | None:
    if field is not None:
        return f"field {field[0]} scope {field[1]}"
    return call if plain else None


def _mig_handle_answers(device: nvml.Device) -> Mapping[str, str]:
    """What power and energy calls say to a MIG device's handle: for the record, and never used.

    It depends on the driver whether they refuse or give the parent's number, and nobody has
    published which does what. Empty without a MIG device.
    """
    try:
        handle = next(iter(nvml.mig_devices(device)), None)
    except NvmlError:
        return {}
    if handle is None:
        return {}
    found = {}
    for name, read, unit in (
        ("power", nvml.power_w, "W"),
        ("energy", nvml.energy_j, "J"),
    ):
        try:
            value = read(nvml.Device(handle))
        except NvmlError as error:
            found[name] = code_text(error.code)
        else:
            found[name] = f"{value:.6g} {unit}: not the instance's, and not used"
    return found


def _architecture(device: nvml.Device) -> str | None:
    try:
        return nvml.architecture(device)
    except NvmlError:
        return None


def _capability(device: nvml.Device) -> tuple[int, int] | None:
    try:
        return nvml.compute_capability(device)
    except NvmlError:
        return None
