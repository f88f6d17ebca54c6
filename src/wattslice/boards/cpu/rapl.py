"""Energy counters of the CPU package and its memory through the kernel's powercap interface.

Each domain has `energy_uj`, which counts microjoules and wraps at `max_energy_range_uj`
(Linux: Documentation/power/powercap/powercap.rst). Since 2020 kernels let only root read it, as
the counter can leak secrets (CVE-2020-8694).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wattslice.boards.base import Sample
from wattslice.records.board import EnergyCapability, EnergyScope

POWERCAP = Path("/sys/class/powercap")
METHOD = "rapl-counter"
# The register ticks about every millisecond (Intel SDM vol. 3, 16.10.4).
UPDATE_PERIOD_S = 0.001


@dataclass(frozen=True, slots=True)
class Domain:
    """One counter."""

    name: str
    path: Path
    range_j: float

    def read_j(self) -> float:
        return int((self.path / "energy_uj").read_text()) * 1e-6


def find_domains(root: Path = POWERCAP) -> tuple[Domain, ...]:
    """Package and dram domains. Sub-domains of the package (core, uncore) would count twice."""
    found = []
    for path in sorted(root.glob("intel-rapl:*")):
        try:
            name = (path / "name").read_text().strip()
            range_j = int((path / "max_energy_range_uj").read_text()) * 1e-6
        except (OSError, ValueError):
            continue
        if name.startswith("package") or name == "dram":
            parent = f"/{path.name.split(':')[1]}" if name == "dram" else ""
            found.append(Domain(name + parent, path, range_j))
    return tuple(found)


def probe(root: Path = POWERCAP, wait_s: float = 0.05) -> EnergyCapability:
    """Whether RAPL energy can be had; the reason says what is in the way."""

    def missing(reason: str) -> EnergyCapability:
        return EnergyCapability(scope=None, method=None, reason=reason)

    domains = find_domains(root)
    if not domains:
        return missing(f"no RAPL package domain below {root} (virtual machine, or no such counter)")
    try:
        before = [domain.read_j() for domain in domains]
        time.sleep(wait_s)
        after = [domain.read_j() for domain in domains]
    except PermissionError as error:
        return missing(
            f"{error.filename} may be read by root only: run as root, or ask an administrator for "
            "read access (chmod a+r on energy_uj, or CAP_DAC_READ_SEARCH)"
        )
    except (OSError, ValueError) as error:
        return missing(f"RAPL counters cannot be read: {error}")
    frozen = [d.name for d, a, b in zip(domains, before, after, strict=True) if a == b]
    packages = [d.name for d in domains if d.name.startswith("package")]
    if any(name in frozen for name in packages):
        return missing(f"RAPL counter of {', '.join(frozen)} is there but does not move")
    return EnergyCapability(scope="package", method=METHOD)


class RaplSource:
    """Sum of all package and dram counters, made monotonic over their wraps."""

    scope: EnergyScope = "package"
    method = METHOD

    def __init__(self, root: Path = POWERCAP) -> None:
        self._root = root
        self._domains: tuple[Domain, ...] = ()
        self._last: list[float] = []
        self._total_j = 0.0

    def describe(self) -> Mapping[str, object]:
        return {
            "domains": [domain.name for domain in find_domains(self._root)],
            "ranges_j": [domain.range_j for domain in find_domains(self._root)],
            "power_field": None,
            "update_period_s": UPDATE_PERIOD_S,
            "counter_granularity_j": 61e-6,
            "granularity_source": "2^-14 J, the usual RAPL energy unit (Intel SDM vol. 3, 16.10.1)",
        }

    def open(self) -> None:
        self._domains = find_domains(self._root)
        self._last = [domain.read_j() for domain in self._domains]
        self._total_j = 0.0

    def read(self) -> Sample:
        before = time.monotonic()
        try:
            now = [domain.read_j() for domain in self._domains]
        except (OSError, ValueError) as error:
            after = time.monotonic()
            return Sample((before + after) / 2, after - before, error=f"energy_j: {error}")
        for domain, last, value in zip(self._domains, self._last, now, strict=True):
            delta = value - last
            self._total_j += delta if delta >= 0 else delta + domain.range_j
        self._last = now
        after = time.monotonic()
        return Sample((before + after) / 2, after - before, energy_j=self._total_j)

    def close(self) -> None:
        self._domains = ()
