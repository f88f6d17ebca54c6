"""wattslice: training throughput and energy of models on GPU and CPU slices, traceably measured."""

__version__ = "0.1.0"
