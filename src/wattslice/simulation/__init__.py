"""Running programs on simulated GPU boards: a stand-in for NVIDIA's libnvidia-ml.so.1.

The library itself is C, in ``simulator/``; this package builds it, writes the boards that a
simulation starts with, runs commands on them and knows what is true about them. Importing it
needs neither NVML nor a compiler.
"""

from wattslice.simulation.errors import SimulationError
from wattslice.simulation.library import is_simulated

__all__ = ["SimulationError", "is_simulated"]
