"""The host CPU as a board: slices are disjoint core sets, energy comes from RAPL or is modelled."""
