"""Measuring: the sampler, what its samples say about energy, and when a run is steady."""
