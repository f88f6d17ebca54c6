"""Files of mig-parted (version v1) as a source of layouts, and the present state as such a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from wattslice import strict_yaml
from wattslice.boards.errors import BoardError
from wattslice.boards.nvidia.mig.profiles import ProfileName, ProfileNameError
from wattslice.config.layout import Layout

_VERSION = "v1"
_TOP = ("version", "mig-configs")
_ENTRY = ("device-filter", "devices", "mig-enabled", "mig-devices")
_REQUIRED = ("devices", "mig-enabled")
_EXPORT_LABEL = "current"


class PartedError(BoardError):
    """The file is not a mig-parted file; the message names the place."""


@dataclass(frozen=True, slots=True)
class PartedEntry:
    """One group of a configuration: for which boards, and what they are to have."""

    devices: Literal["all"] | tuple[int, ...]  # NVML indices
    mig_enabled: bool
    mig_devices: Mapping[str, int]
    device_filter: tuple[int, ...] | None = None  # PCI device ids; None: all boards

    def applies(self, index: int, pci_device_id: int) -> bool:
        if self.device_filter is not None and pci_device_id not in self.device_filter:
            return False
        return self.devices == "all" or index in self.devices

    def layout(self) -> Layout:
        """`full` with MIG off, no slices with MIG on and empty."""
        if not self.mig_enabled:
            return Layout(("full",))
        if not self.mig_devices:
            return Layout(())
        parts = [f"{count}x{name}" for name, count in self.mig_devices.items() if count]
        return Layout.parse(",".join(parts))


@dataclass(frozen=True, slots=True)
class PartedFile:
    """All configurations of a file by label."""

    configs: Mapping[str, tuple[PartedEntry, ...]]

    def layout(self, label: str, index: int, pci_device_id: int) -> Layout | None:
        """The layout of one board, or None when the configuration leaves it alone.

        Raises PartedError for an unknown label, or when two groups disagree about the board.
        """
        if label not in self.configs:
            known = ", ".join(sorted(self.configs))
            raise PartedError(f"no configuration {label!r} in the file; it has {known}")
        layouts = [e.layout() for e in self.configs[label] if e.applies(index, pci_device_id)]
        if len(set(layouts)) > 1:
            listed = " and ".join(str(item) for item in layouts)
            raise PartedError(f"{label}: board {index} is in groups that disagree: {listed}")
        return layouts[0] if layouts else None


def load(path: Path) -> PartedFile:
    """Read a file. Raises PartedError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PartedError(f"{path}: cannot be read: {error}") from error
    try:
        return parse(text)
    except PartedError as error:
        raise PartedError(f"{path}: {error}") from error


def parse(text: str) -> PartedFile:
    """Read a file's text. Unknown keys are errors, as in mig-parted itself."""
    try:
        data = strict_yaml.load(text)
    except strict_yaml.DuplicateKeyError as error:
        raise PartedError(str(error)) from error
    except yaml.YAMLError as error:
        raise PartedError(f"not YAML: {error}") from error
    top = _keys(data, "the file", _TOP, _TOP)
    if top["version"] != _VERSION:
        raise PartedError(f"version is {top['version']!r}, only {_VERSION} is known")
    configs = top["mig-configs"]
    if not isinstance(configs, dict) or not configs:
        raise PartedError("mig-configs: a mapping from label to groups is wanted")
    return PartedFile({str(label): _config(str(label), v) for label, v in configs.items()})


def _config(label: str, entries: Any) -> tuple[PartedEntry, ...]:
    if not isinstance(entries, list) or not entries:
        raise PartedError(f"{label}: a list of groups is wanted")
    return tuple(_entry(f"{label}[{i}]", entry) for i, entry in enumerate(entries))


def _entry(where: str, data: Any) -> PartedEntry:
    entry = _keys(data, where, _ENTRY, _REQUIRED)
    enabled = entry["mig-enabled"]
    if not isinstance(enabled, bool):
        raise PartedError(f"{where}: mig-enabled must be true or false, not {enabled!r}")
    if enabled and "mig-devices" not in entry:
        raise PartedError(f"{where}: mig-devices is missing (it may be empty: {{}})")
    mig_devices = _mig_devices(where, entry.get("mig-devices") or {})
    if not enabled and mig_devices:
        raise PartedError(f"{where}: mig-devices must be empty where mig-enabled is false")
    return PartedEntry(
        devices=_devices(where, entry["devices"]),
        mig_enabled=enabled,
        mig_devices=mig_devices,
        device_filter=_filter(where, entry["device-filter"]) if "device-filter" in entry else None,
    )


def _keys(data: Any, where: str, known: Sequence[str], required: Sequence[str]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise PartedError(f"{where}: a mapping is wanted, not {type(data).__name__}")
    unknown = [str(key) for key in data if key not in known]
    if unknown:
        raise PartedError(
            f"{where}: unknown key {', '.join(unknown)}; known are {', '.join(known)}"
        )
    missing = [key for key in required if key not in data]
    if missing:
        raise PartedError(f"{where}: {', '.join(missing)} is missing")
    return data


def _devices(where: str, value: Any) -> Literal["all"] | tuple[int, ...]:
    if value == "all":
        return "all"
    if isinstance(value, list) and all(
        isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in value
    ):
        if len(set(value)) != len(value):
            raise PartedError(f"{where}: devices names a board twice: {value}")
        return tuple(value)
    raise PartedError(f"{where}: devices must be `all` or a list of board numbers, not {value!r}")


def _filter(where: str, value: Any) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    numbers = []
    for item in values:
        try:
            # YAML reads a bare 0x233010DE as a number already.
            numbers.append(item if type(item) is int else int(str(item), 16))
        except ValueError:
            raise PartedError(
                f"{where}: device-filter {item!r} is not a PCI device id such as 0x233010DE"
            ) from None
    return tuple(numbers)


def _mig_devices(where: str, value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        raise PartedError(f"{where}: mig-devices must map profiles to counts, not {value!r}")
    found: dict[str, int] = {}
    for key, count in value.items():
        try:
            name = str(ProfileName.parse(str(key)))
        except ProfileNameError as error:
            raise PartedError(f"{where}: {error}") from None
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise PartedError(f"{where}: the count of {key} must be 0 or more, not {count!r}")
        found[name] = found.get(name, 0) + count
    if found and not any(found.values()):
        raise PartedError(f"{where}: all counts in mig-devices are 0")
    return found


def export(boards: Sequence[tuple[int, bool, Sequence[str]]]) -> str:
    """A file with the one configuration `current`.

    `boards` are (NVML index, MIG on, exact profile names of its MIG devices); equal boards share
    a group.
    """
    groups: dict[tuple[bool, tuple[tuple[str, int], ...]], list[int]] = {}
    for index, enabled, names in boards:
        counts = tuple(sorted(Counter(names).items()))
        groups.setdefault((enabled, counts), []).append(index)
    entries = [
        {
            "devices": indices,
            "mig-enabled": enabled,
            "mig-devices": dict(counts),
        }
        for (enabled, counts), indices in groups.items()
    ]
    data = {"version": _VERSION, "mig-configs": {_EXPORT_LABEL: entries}}
    return yaml.safe_dump(data, sort_keys=False)
