"""Boards: physical devices with a power meter and (maybe) slices. Nothing here imports torch."""
