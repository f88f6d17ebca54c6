"""Numeric precision of a training step: set through torch's current API, read back, recorded.

| name         | float32 matrix products         | convolutions, RNNs | autocast             |
|--------------|---------------------------------|--------------------|----------------------|
| fp32         | ieee                            | ieee               | off                  |
| fp32-default | torch's default (ieee)          | torch's (cuDNN: TF32) | off               |
| tf32         | tf32                            | tf32               | off                  |
| bf16         | torch's default                 | torch's            | bfloat16             |
| fp16         | torch's default                 | torch's            | float16, loss scaled |
| fp8          | torchao: float8 linear layers   | torch's            | bfloat16             |

Only the `fp32_precision` switches are written (torch >= 2.9). The older `allow_tf32` and
`set_float32_matmul_precision` are neither written nor read: torch forbids mixing the two families.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, Self

import torch

Precision = Literal["fp32", "fp32-default", "tf32", "bf16", "fp16", "fp8"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp32-default", "tf32", "bf16", "fp16", "fp8")

_AUTOCAST: Mapping[str, torch.dtype] = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8": torch.bfloat16,  # what is not a float8 linear layer
}
# Edges of a linear layer that float8 matrix products take (torch._scaled_mm).
_FP8_EDGE = 16

# Environment variables that change float32 arithmetic behind torch's switches:
# NVIDIA_TF32_OVERRIDE (cuBLAS and cuDNN manuals), TORCH_ALLOW_TF32_CUBLAS_OVERRIDE (torch,
# aten/src/ATen/Context.cpp), ONEDNN_DEFAULT_FPMATH_MODE (oneDNN manual, floating-point math mode).
_OVERRIDES = (
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "ONEDNN_DEFAULT_FPMATH_MODE",
)


class UnsupportedPrecisionError(Exception):
    """The device cannot compute in this precision; the message says why."""


def _switches() -> dict[str, Any]:
    """Return torch's fp32_precision switches per operation, by their names below torch.backends."""
    backends: Any = torch.backends
    return {
        "cuda.matmul": backends.cuda.matmul,
        "cudnn.conv": backends.cudnn.conv,
        "cudnn.rnn": backends.cudnn.rnn,
        "mkldnn.matmul": backends.mkldnn.matmul,
        "mkldnn.conv": backends.mkldnn.conv,
        "mkldnn.rnn": backends.mkldnn.rnn,
    }


class PrecisionContext:
    """A precision in force. Leave it (`with`, or `close`) to put torch's switches back.

    `scaler` is a gradient scaler for fp16, else None.
    """

    def __init__(self, precision: Precision, device_type: str) -> None:
        self.precision = precision
        self.device_type = device_type
        self._fp8_layers: int | None = None
        self._before = {name: switch.fp32_precision for name, switch in _switches().items()}
        if precision in ("fp32", "tf32"):
            value = "ieee" if precision == "fp32" else "tf32"
            for name, switch in _switches().items():
                switch.fp32_precision = "ieee" if name.startswith("mkldnn") else value
        self.scaler: torch.amp.GradScaler | None = (
            torch.amp.GradScaler(device_type) if precision == "fp16" else None
        )

    def prepare(self, model: torch.nn.Module) -> None:
        """Change a model in place as the precision needs it; only fp8 does.

        Call it before the optimizer is made and before the model is compiled.

        Raises:
            UnsupportedPrecisionError: the model has no linear layer that can compute in float8.
        """
        if self.precision != "fp8":
            return
        float8 = importlib.import_module("torchao.float8")
        float8.convert_to_float8_training(model, module_filter_fn=_takes_fp8)
        self._fp8_layers = sum(type(m).__name__ == "Float8Linear" for m in model.modules())
        if self._fp8_layers == 0:
            raise UnsupportedPrecisionError(
                "the model has no linear layer whose edges are multiples of 16"
            )

    @property
    def autocasts(self) -> bool:
        """Whether `autocast` does anything."""
        return self.precision in _AUTOCAST

    def autocast(self) -> torch.autocast:
        """Return a new context for forward pass and loss; it does nothing for fp32 and tf32."""
        dtype = _AUTOCAST.get(self.precision)
        if dtype is None:
            return torch.autocast(self.device_type, enabled=False)
        return torch.autocast(self.device_type, dtype=dtype)

    def backward(self, loss: torch.Tensor) -> None:
        """Compute the gradients, of the scaled loss where there is a scaler."""
        if self.scaler is None:
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Step the optimizer; a scaler unscales first and skips a step with infinite gradients."""
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.step(optimizer)
            self.scaler.update()

    def flags(self) -> dict[str, object]:
        """Return what is in force, as read back from torch, in JSON types."""
        with self.autocast():
            enabled = torch.is_autocast_enabled(self.device_type)
            dtype = torch.get_autocast_dtype(self.device_type) if enabled else None
        flags: dict[str, object] = {
            f"torch.backends.{name}.fp32_precision": switch.fp32_precision
            for name, switch in _switches().items()
        }
        flags["torch.backends.fp32_precision"] = getattr(torch.backends, "fp32_precision", None)
        matmul = torch.backends.cuda.matmul
        for name in ("bf16", "fp16"):
            field = f"allow_{name}_reduced_precision_reduction"
            flags[f"torch.backends.cuda.matmul.{field}"] = getattr(matmul, field)
        flags["autocast"] = enabled
        flags["autocast_dtype"] = None if dtype is None else str(dtype).removeprefix("torch.")
        flags["grad_scaler"] = self.scaler is not None and self.scaler.is_enabled()
        if self._fp8_layers is not None:
            flags["float8_linear_layers"] = self._fp8_layers
        for variable in _OVERRIDES:
            if variable in os.environ:
                flags[f"env.{variable}"] = os.environ[variable]
        return flags

    def close(self) -> None:
        """Put torch's switches back as they were."""
        for name, switch in _switches().items():
            switch.fp32_precision = self._before[name]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def apply(precision: Precision, device_type: str) -> PrecisionContext:
    """Set a precision for this process and return its context.

    Args:
        precision: one of PRECISIONS.
        device_type: "cpu" or "cuda"; the worker's own device.

    Raises:
        UnsupportedPrecisionError: the device lacks it (see `supported`).
        ValueError: unknown name.
    """
    reason = supported(precision, device_type)
    if reason is not None:
        raise UnsupportedPrecisionError(reason)
    return PrecisionContext(precision, device_type)


def supported(
    precision: str, device_type: str, capability: tuple[int, int] | None = None
) -> str | None:
    """Return None if a device computes natively in a precision, else the reason why not.

    On a CPU, fp16 is probed: without half arithmetic (avx512_fp16, amx_fp16) torch gives right
    results but emulates them; a 512x512 linear layer's step was 29 times slower than in fp32 on a
    CPU with avx512_bf16 (116 ms against 4 ms, one thread each), so its throughput says nothing.

    Args:
        precision: one of PRECISIONS.
        device_type: "cpu" or "cuda".
        capability: compute capability; default: of the current CUDA device.

    Raises:
        ValueError: unknown precision or device type.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision: {precision!r} is not one of {', '.join(PRECISIONS)}")
    if device_type == "cpu":
        return _unsupported_on_cpu(precision)
    if device_type == "cuda":
        return _unsupported_on_cuda(precision, capability)
    raise ValueError(f"device type: {device_type!r} is not one of cpu, cuda")


def _unsupported_on_cpu(precision: str) -> str | None:
    if precision == "tf32":
        return "tf32 is a format of NVIDIA's tensor cores; a CPU does not have it"
    if precision == "fp8":
        return "float8 training (torchao) needs an NVIDIA GPU; torch has no such CPU kernels"
    if precision == "fp16" and not _cpu_has_half_arithmetic():
        return (
            "this CPU has no float16 arithmetic (avx512_fp16, amx_fp16 or Arm's fp16); "
            "torch would emulate it many times slower than fp32"
        )
    mode = os.environ.get("ONEDNN_DEFAULT_FPMATH_MODE", "STRICT").upper()
    if precision == "fp32" and mode != "STRICT":
        return f"strict fp32 is not possible while ONEDNN_DEFAULT_FPMATH_MODE={mode} is set"
    return None


def _cpu_has_half_arithmetic() -> bool:
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    except (AttributeError, RuntimeError):  # a build of torch without oneDNN
        return False


def _unsupported_on_cuda(precision: str, capability: tuple[int, int] | None) -> str | None:
    needed = {"tf32": (8, 0), "bf16": (8, 0), "fp16": (5, 3), "fp8": (8, 9)}.get(precision)
    if needed is not None:
        has = capability if capability is not None else torch.cuda.get_device_capability()
        if has < needed:
            return (
                f"{precision} needs compute capability {needed[0]}.{needed[1]}, "
                f"the device has {has[0]}.{has[1]}"
            )
    if precision == "fp8" and importlib.util.find_spec("torchao") is None:
        return "fp8 needs the package torchao, which is not installed"
    override = os.environ.get("NVIDIA_TF32_OVERRIDE")
    if precision == "fp32" and override not in (None, "", "0"):
        return f"strict fp32 is not possible while NVIDIA_TF32_OVERRIDE={override} is set"
    if precision == "tf32" and override == "0":
        return "tf32 is switched off by NVIDIA_TF32_OVERRIDE=0"
    return None


def _takes_fp8(module: torch.nn.Module, name: str) -> bool:
    """Whether a linear layer's edges fit; the output head stays in bfloat16, as torchao advises."""
    if not isinstance(module, torch.nn.Linear) or name.endswith(("lm_head", "classifier", "score")):
        return False
    return module.in_features % _FP8_EDGE == 0 and module.out_features % _FP8_EDGE == 0
