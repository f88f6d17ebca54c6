"""The numbers of MIG that are easily mixed up, each as a type of its own.

On an A100 the profile id 14 is a 2g, on an A30 it is a 1g: no number here means anything without
the board it was read from.
"""

from __future__ import annotations

from typing import NewType

# NVML_GPU_INSTANCE_PROFILE_*: only for asking about a profile. 0..17 in nvml.h of API 13.
ProfileConstant = NewType("ProfileConstant", int)
# Field `id` of a profile's description: what placements, creation and listing take.
ProfileId = NewType("ProfileId", int)
# Number of one existing GPU instance; not a function of its placement, reused after destruction.
GpuInstanceId = NewType("GpuInstanceId", int)

# The same three for compute instances, which live inside a GPU instance.
CiProfileConstant = NewType("CiProfileConstant", int)
CiProfileId = NewType("CiProfileId", int)
ComputeInstanceId = NewType("ComputeInstanceId", int)
