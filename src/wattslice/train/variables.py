"""Environment variables by which threading, CUDA and PyTorch are steered, for the record."""

from __future__ import annotations

import re
from collections.abc import Mapping

PREFIXES = ("OMP_", "GOMP_", "KMP_", "MKL_", "NVIDIA_", "CUDA_", "PYTORCH_", "TORCH_")
# e.g. NVIDIA_API_KEY: records are published.
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
_LINK_WITH_LOGIN = re.compile(r"://[^/\s]*@")


def steering_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Names and values, in order; values that may be secret are withheld, their names are not."""
    return {
        name: "(withheld)" if _SECRET.search(name) or _LINK_WITH_LOGIN.search(value) else value
        for name, value in sorted(environ.items())
        if name.startswith(PREFIXES)
    }
