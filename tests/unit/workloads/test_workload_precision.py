"""Precisions as torch reads them back."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from wattslice.workloads import precision

CUDA = ("cuda.matmul", "cudnn.conv", "cudnn.rnn")
CPU = ("mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn")


def switches(flags):
    return {name: flags[f"torch.backends.{name}.fp32_precision"] for name in (*CUDA, *CPU)}


def defaults():
    """torch's switches in a fresh process."""
    code = (
        "import torch; b = torch.backends; print(b.cuda.matmul.fp32_precision, "
        "b.cudnn.conv.fp32_precision, b.cudnn.rnn.fp32_precision, b.mkldnn.matmul.fp32_precision, "
        "b.mkldnn.conv.fp32_precision, b.mkldnn.rnn.fp32_precision)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    return dict(zip((*CUDA, *CPU), printed, strict=True))


def test_strict_fp32_is_ieee_everywhere():
    with precision.apply("fp32", "cpu") as context:
        flags = context.flags()
    assert set(switches(flags).values()) == {"ieee"}
    assert flags["autocast"] is False
    assert flags["autocast_dtype"] is None
    assert flags["grad_scaler"] is False


@pytest.mark.parametrize("kind", ["fp32-default", "bf16"])
def test_fp32_default_is_what_torch_starts_with(kind):
    fresh = defaults()
    assert fresh["cudnn.conv"] == "tf32"  # the default that papers take for fp32
    code = (  # in a process of its own: others here may have left switches behind
        "import json, sys; from wattslice.workloads import precision;"
        "print(json.dumps(precision.apply(sys.argv[1], 'cpu').flags()))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code, kind],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": "src"},
    ).stdout
    assert switches(json.loads(printed)) == fresh


def test_tf32_is_set_for_products_convolutions_and_rnns(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    with precision.apply("tf32", "cuda") as context:
        read = switches(context.flags())
    assert {read[name] for name in CUDA} == {"tf32"}
    assert {read[name] for name in CPU} == {"ieee"}


def test_bf16_computes_in_bfloat16_and_keeps_float32_weights():
    layer = torch.nn.Linear(4, 4)
    with precision.apply("bf16", "cpu") as context:
        with context.autocast():
            result = layer(torch.ones(2, 4))
        flags = context.flags()
    assert result.dtype == torch.bfloat16
    assert layer.weight.dtype == torch.float32
    assert flags["autocast"] is True
    assert flags["autocast_dtype"] == "bfloat16"
    assert context.scaler is None


def test_fp16_has_a_scaler(monkeypatch):
    monkeypatch.setattr(precision, "_cpu_has_half_arithmetic", lambda: True)
    weight = torch.nn.Parameter(torch.ones(8))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    with precision.apply("fp16", "cpu") as context:
        context.backward((weight * 2).sum())
        assert float(weight.grad[0]) > 2  # scaled
        context.step(optimizer)
        assert context.flags()["grad_scaler"] is True
        assert context.flags()["autocast_dtype"] == "float16"
    assert torch.equal(weight.detach(), torch.zeros(8))  # 1 - 0.5 x 2


def test_switches_are_put_back():
    before = switches(precision.PrecisionContext("fp32-default", "cpu").flags())
    with precision.apply("fp32", "cpu"):
        pass
    assert switches(precision.PrecisionContext("fp32-default", "cpu").flags()) == before


def test_the_old_switches_still_answer():
    """Mixing the old and the new family makes torch raise; apply must leave both readable."""
    code = (
        f"import sys; sys.path[:0] = {[p for p in sys.path if p]!r}; import torch; "
        "from wattslice.workloads import precision; "
        "c = precision.apply('fp32', 'cpu'); c.flags(); "
        "print(torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.allow_tf32)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["highest", "False"]
    assert "deprecat" not in done.stderr.lower()


def test_flags_are_json():
    import json

    with precision.apply("bf16", "cpu") as context:
        json.dumps(context.flags(), allow_nan=False)


@pytest.mark.parametrize(
    ("kind", "device", "capability", "reason"),
    [
        ("tf32", "cpu", None, "tensor cores"),
        ("bf16", "cpu", None, None),
        ("fp32", "cpu", None, None),
        ("fp32-default", "cpu", None, None),
        ("tf32", "cuda", (7, 5), "tf32 needs compute capability 8.0, the device has 7.5"),
        ("bf16", "cuda", (7, 0), "bf16 needs compute capability 8.0"),
        ("bf16", "cuda", (8, 0), None),
        ("tf32", "cuda", (9, 0), None),
        ("fp16", "cuda", (7, 0), None),
        ("fp32", "cuda", (3, 5), None),
    ],
)
def test_support(kind, device, capability, reason):
    found = precision.supported(kind, device, capability)
    assert (found is None) if reason is None else (reason in found)


def test_fp16_on_a_cpu_depends_on_the_cpu(monkeypatch):
    monkeypatch.setattr(precision, "_cpu_has_half_arithmetic", lambda: False)
    assert "emulate" in precision.supported("fp16", "cpu")
    with pytest.raises(precision.UnsupportedPrecisionError, match="float16"):
        precision.apply("fp16", "cpu")


def test_the_environment_can_forbid_a_precision(monkeypatch):
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert "NVIDIA_TF32_OVERRIDE" in precision.supported("tf32", "cuda", (8, 0))
    assert precision.supported("fp32", "cuda", (8, 0)) is None
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    assert "NVIDIA_TF32_OVERRIDE" in precision.supported("fp32", "cuda", (8, 0))
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "BF16")
    assert "ONEDNN_DEFAULT_FPMATH_MODE" in precision.supported("fp32", "cpu")
    flags = precision.PrecisionContext("fp32-default", "cpu").flags()
    assert flags["env.NVIDIA_TF32_OVERRIDE"] == "1"


@pytest.mark.parametrize(("kind", "device"), [("fp4", "cpu"), ("fp32", "tpu")])
def test_unknown_names_are_refused(kind, device):
    with pytest.raises(ValueError, match="is not one of"):
        precision.supported(kind, device)
