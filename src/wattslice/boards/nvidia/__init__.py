"""NVIDIA boards: identity, MIG layouts and sensors, all through one NVML module."""
