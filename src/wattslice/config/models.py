"""The campaign's config as Pydantic models: one source of schema, defaults and documentation."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Precision = Literal["fp32", "fp32-default", "tf32", "bf16", "fp16", "fp8"]
Task = Literal["image-classification", "text-classification", "masked-lm", "causal-lm"]
SharingScheme = Literal["partition", "sequential", "time-slice", "mps"]
NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,63}$"
# Of what a config defines; it becomes part of paths. A reference to it is a Label, so that a wrong
# one is answered with the names that there are.
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Label = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


class ConfigModel(BaseModel):
    """Base: an unknown key is an error, not a silent default."""

    model_config = ConfigDict(extra="forbid", frozen=True)


_Value = TypeVar("_Value")


def option(default: _Value, *, description: str, **bounds: Any) -> _Value:
    """A key that was added after runs had been recorded.

    It is left out of every dump while it has its default, so that the spec digest of a run that
    does not use it stays what it was.
    """
    field: _Value = Field(
        default, description=description, exclude_if=lambda value: value == default, **bounds
    )
    return field


class PowerModel(ConfigModel):
    """A declared power model of a CPU board: P = idle_w + active_w_per_core x busy cores.

    It measures nothing. Every figure that rests on it is labelled `modelled`.
    """

    idle_w: float = Field(ge=0, description="power with no core busy, W")
    active_w_per_core: float = Field(gt=0, description="added power of one fully busy core, W")
    source: Label = Field(description="where the two numbers come from")


class BoardConfig(ConfigModel):
    """Which board the campaign runs on."""

    kind: Literal["auto", "cpu", "nvidia"] = Field(
        "auto", description="`auto`: nvidia if NVML answers and torch sees the device, else cpu"
    )
    select: str | Annotated[tuple[Label, ...], Field(min_length=1)] | None = Field(
        None,
        description="UUID (or its unique start) or PCI address, where there are several boards; a "
        "list for layouts of several boards: 4xfull takes the first four, all others the first",
    )
    mig: Literal["off", "existing", "managed"] = Field(
        "existing",
        description="`existing`: use and verify the instances that are there, change nothing; "
        "`managed`: create and restore layouts (needs root); `off`: MIG must be off",
    )
    power_model: PowerModel | None = Field(
        None, description="CPU boards without a readable energy counter only; labelled modelled"
    )


class WarmupConfig(ConfigModel):
    """When a worker counts as steady."""

    min_steps: int = Field(5, ge=1, description="steps before steadiness is judged")
    cv_steps: int = Field(20, ge=3, description="steps over which the variation is taken")
    cv_max: float = Field(0.02, gt=0, description="coefficient of variation of step times, 1")
    temperature_drift_c: float = Field(
        1.0, gt=0, description="allowed drift of the board's temperature over 30 s, °C"
    )
    max_s: float = Field(120.0, gt=0, description="cap; a run that hits it is flagged, s")


class WindowConfig(ConfigModel):
    """The measured interval."""

    min_s: float = Field(60.0, ge=1.0, description="shortest window, s (never under 5 on a GPU)")
    min_steps: int = Field(10, ge=3, description="steps that each worker must finish in it")
    max_s: float = Field(600.0, gt=0, description="cap that ends a window of slow steps, s")


class CooldownConfig(ConfigModel):
    """Rest before a run, so that runs start alike."""

    slope_c_per_min: float = Field(
        2.0, gt=0, description="go on once the board cools more slowly than this, °C/min"
    )
    max_s: float = Field(60.0, ge=0, description="cap; 0 switches it off, s")


class MeasureConfig(ConfigModel):
    """How a run is measured."""

    sample_hz: float = Field(10.0, gt=0, le=100, description="rate of the power sampler, Hz")
    warmup: WarmupConfig = Field(
        default_factory=WarmupConfig, description="when a worker is steady"
    )
    window: WindowConfig = Field(default_factory=WindowConfig, description="the measured interval")
    cooldown: CooldownConfig = Field(
        default_factory=CooldownConfig, description="rest before a run"
    )
    idle_s: float = Field(30.0, ge=1, description="length of the idle measurement per layout, s")
    start_timeout_s: float = Field(
        600.0, gt=0, description="time for all workers to build their models, s"
    )
    allow_partial: bool = Field(
        False,
        description="a run of several workers counts although one was lost (out of memory, killed)",
    )


class DigitsData(ConfigModel):
    """scikit-learn's 1,797 handwritten digits (8x8), resized as images; real data, 10 classes."""

    kind: Literal["digits"] = Field(description="this kind of data")
    image_size: int = Field(32, ge=8, le=512, description="edge of the square image, pixels")
    channels: Literal[1, 3] = Field(3, description="colour channels")


class TextData(ConfigModel):
    """Python's own language reference as byte tokens; real text that comes with every Python.

    For text-classification the label of a sequence is the topic that it was taken from.
    """

    kind: Literal["pydoc-text"] = Field(description="this kind of data")
    sequence_length: int = Field(128, ge=8, le=8192, description="tokens per sequence")
    classes: int = Field(8, ge=2, le=32, description="topics, for text-classification")


class SyntheticImages(ConfigModel):
    """Deterministic random images of any shape; the loss is not asked to fall."""

    kind: Literal["synthetic-images"] = Field(description="this kind of data")
    image_size: int = Field(224, ge=8, le=2048, description="edge of the square image, pixels")
    channels: int = Field(3, ge=1, le=16, description="colour channels")
    classes: int = Field(1000, ge=2, description="number of labels")
    samples: int = Field(256, ge=1, description="different samples, reused in turn")


class SyntheticTokens(ConfigModel):
    """Deterministic random token sequences; the loss is not asked to fall."""

    kind: Literal["synthetic-tokens"] = Field(description="this kind of data")
    sequence_length: int = Field(128, ge=8, le=131072, description="tokens per sequence")
    vocabulary: int = Field(32000, ge=8, description="number of token ids")
    classes: int = Field(2, ge=2, description="number of labels, for text-classification")
    samples: int = Field(256, ge=1, description="different samples, reused in turn")


class ImageFolderData(ConfigModel):
    """ImageNet-style folders on disk: one folder per class below `path`, read while training.

    Shorter edge resized to image_size / 0.875, centre crop, random horizontal flip.
    """

    kind: Literal["image-folder"] = Field(description="this kind of data")
    path: Label = Field(description="folder with one folder of images per class, e.g. …/train")
    image_size: int = Field(224, ge=8, le=2048, description="edge of the square image, pixels")
    channels: Literal[3] = Field(3, description="colour channels")
    classes: int = Field(1000, ge=2, description="number of class folders; checked")


class CifarData(ConfigModel):
    """CIFAR-10 or CIFAR-100 in their binary or Python form on disk, resized as images."""

    kind: Literal["cifar"] = Field(description="this kind of data")
    path: Label = Field(description="the unpacked folder, e.g. …/cifar-10-batches-bin")
    classes: Literal[10, 100] = Field(10, description="CIFAR-10, or CIFAR-100's fine labels")
    image_size: int = Field(32, ge=8, le=512, description="edge of the square image, pixels")
    channels: Literal[3] = Field(3, description="colour channels")


class TextFilesData(ConfigModel):
    """Text in local files: Hugging Face data sets on disk, GLUE, Alpaca, plain text.

    Read are .parquet, .arrow (as `save_to_disk` writes them), .csv, .tsv, .json, .jsonl and .txt
    (one column, `text`, a row per line).
    """

    kind: Literal["text-files"] = Field(description="this kind of data")
    path: Label = Field(description="a file, or a folder that is searched for files")
    split: str | None = Field(
        "train", description="files of a folder whose name or folder begins so; null: all"
    )
    template: str = Field(
        "{text}",
        min_length=1,
        description="text of a row, columns in braces, e.g. `{instruction}\\n{output}`",
    )
    label: str | None = Field(
        None, description="column of the class, for text-classification; null: all of class 0"
    )
    classes: int = Field(2, ge=2, description="number of labels; checked")
    tokenizer: Label = Field(
        "bytes", description="`bytes`, or a local folder (or file) with a tokenizer.json"
    )
    sequence_length: int = Field(128, ge=8, le=131072, description="tokens per sequence")
    pack: bool = Field(
        True,
        description="texts joined and cut into full sequences; false: one text per sequence, cut "
        "or padded, with an attention mask",
    )
    max_rows: int | None = Field(None, ge=1, description="rows to read; null: all")


DataConfig = Annotated[
    DigitsData
    | TextData
    | SyntheticImages
    | SyntheticTokens
    | ImageFolderData
    | CifarData
    | TextFilesData,
    Field(discriminator="kind"),
]


class LoaderConfig(ConfigModel):
    """Batches prepared ahead by threads, by torch.utils.data.DataLoader's own names."""

    num_workers: int = Field(
        1, ge=1, le=64, description="threads that prepare batches, on the worker's own cores"
    )
    prefetch_factor: int = Field(2, ge=1, le=64, description="batches ahead per thread")
    pin_memory: bool = Field(False, description="page-locked batches, for copies to a GPU")


class LoraConfig(ConfigModel):
    """Low-rank adapters, by peft's own names; all other parameters are frozen."""

    kind: Literal["lora"] = Field(description="this kind of adapter")
    r: int = Field(8, ge=1, description="rank")
    lora_alpha: int = Field(16, ge=1, description="scaling is lora_alpha / r")
    lora_dropout: float = Field(0.0, ge=0, lt=1, description="dropout before the adapter")
    target_modules: tuple[Label, ...] | None = Field(
        None, description="names of the layers that get one; null: peft's own for the model"
    )


class CompileConfig(ConfigModel):
    """torch.compile, by its own argument names."""

    backend: Label = Field("inductor", description="compiler")
    mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] = (
        Field("default", description="what it optimises for")
    )
    fullgraph: bool = Field(False, description="refuse a model that breaks into several graphs")
    dynamic: bool | None = Field(None, description="shapes that may change")


class OptimizerConfig(ConfigModel):
    """The optimizer, by torch's own names."""

    name: Literal["adamw", "sgd"] = Field("adamw", description="torch.optim class")
    lr: float = Field(1e-3, gt=0, description="learning rate, constant")
    weight_decay: float = Field(0.01, ge=0, description="weight decay")
    momentum: float = Field(0.0, ge=0, lt=1, description="sgd only")
    fused: bool | None = option(None, description="one kernel for all; null: torch's choice")
    foreach: bool | None = option(None, description="kernels over lists; null: torch's choice")


class BatchSearchConfig(ConfigModel):
    """The search for the largest batch: doubled until one does not fit, then halved in between.

    Each size is tried in processes of its own, with all workers of the run that train the same
    workload on the same kind of slice.
    """

    min: int = Field(1, ge=1, description="smallest size that is tried")
    max: int = Field(4096, ge=1, description="largest size that is tried")
    steps: int = Field(10, ge=1, description="steps of a try, after two that are looked at closely")
    headroom: float = Field(
        0.02,
        ge=0,
        lt=1,
        description="share of the largest that is given up where memory is the limit: a run needs "
        "a little more than a try of a few steps",
    )
    max_s: float = Field(
        900.0, gt=0, description="no try is begun after this; the largest so far is taken, s"
    )


class WorkloadConfig(ConfigModel):
    """Model + task + data + batch + optimizer + mode."""

    framework: Literal["timm", "transformers"] = Field(description="library that builds the model")
    model: Label = Field(
        description="timm model name, or transformers `model_type` (distilbert, albert, llama, …)"
    )
    task: Task = Field(description="what is trained")
    data: Label = Field(description="a key of `data`")
    batch_size: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        description="samples per step on one worker; `auto`: the largest that fits, which each run "
        "finds out for itself before it measures"
    )
    batch_search: BatchSearchConfig | None = option(
        None, description="limits of the search for `batch_size: auto`; null: their defaults"
    )
    model_args: dict[str, Any] = Field(
        default_factory=dict,
        description="timm.create_model arguments, or fields of the transformers config class",
    )
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig, description="the optimizer")
    mode: Literal["train", "finetune"] = Field(
        "train", description="`train`: from scratch; `finetune`: needs `weights`"
    )
    weights: str | None = Field(
        None,
        description="local folder or file of pretrained weights; `hub:<owner>/<name>`: from the "
        "local hub cache if it is there, else random (the record says which); null: random",
    )
    adapter: LoraConfig | None = option(None, description="train adapters only")
    gradient_accumulation_steps: int = option(
        1, ge=1, description="equal parts that a step's batch is computed in; divides batch_size"
    )
    gradient_checkpointing: bool = option(
        False, description="recompute activations in the backward pass (the library's own way)"
    )
    memory_format: Literal["contiguous_format", "channels_last"] = option(
        "contiguous_format", description="torch.memory_format of image models"
    )
    compile: CompileConfig | None = option(None, description="torch.compile; null: eager")
    loader: LoaderConfig | None = option(
        None, description="prepare batches in the background; null: in the step"
    )
    note: str | None = Field(None, description="what the workload stands for; not part of a run")


class ExperimentConfig(ConfigModel):
    """Runs to make: layouts x workloads x precisions x placements x repeats."""

    name: Name = Field(description="unique name")
    question: str | None = Field(None, description="what it answers; shown in the report")
    layouts: tuple[Label, ...] = Field(
        min_length=1,
        description="e.g. full, 2x1c, 4g+2g+1g; 4xfull: four boards, for `ddp`; see docs for the "
        "grammar",
    )
    workloads: tuple[Label, ...] = Field((), description="keys of `workloads`, for solo and fill")
    precisions: tuple[Precision, ...] = Field(min_length=1, description="one run each")
    placements: tuple[Label, ...] = Field(
        ("solo",),
        min_length=1,
        description="`solo`, `fill`, `ddp`, or keys of `mixes` or `job_lists`",
    )
    sharing: tuple[SharingScheme, ...] = Field(
        ("partition",),
        min_length=1,
        description="how the jobs of mixes and job lists get the board. `partition`: a slice each; "
        "the others are baselines on a layout of one slice, such as full or 7g: `sequential`, one "
        "job after another (each is run alone); `time-slice`, all at once, in turns; `mps`, all "
        "at once under CUDA MPS",
    )
    mps_percentages: tuple[Annotated[int, Field(ge=1, le=100)], ...] = Field(
        (), description="active-thread percentage of each job under `mps`; empty: no limits"
    )
    repeats: int = Field(3, ge=1, le=1000, description="separate processes per cell")


class PlanConfig(ConfigModel):
    """What the target `validate` plans from the campaign's measurements, runs and compares."""

    jobs: tuple[Label, ...] = Field(
        (), description="keys of `workloads`, once per job; empty: all, as many as fit"
    )
    precision: Precision | None = Field(None, description="null: the campaign's first")
    objective: Literal["throughput", "samples-per-joule"] = Field(
        "throughput", description="what the best layout is best in"
    )
    random: int = Field(3, ge=0, le=100, description="layouts drawn at random beside the best")
    repeats: int = Field(1, ge=1, le=100, description="runs of each layout")


class ReportConfig(ConfigModel):
    """What the report shows."""

    formats: tuple[Literal["html", "svg", "png", "pdf"], ...] = Field(
        ("html", "svg", "png", "pdf"), min_length=1, description="files made of each figure"
    )
    confidence: float = Field(0.95, gt=0.5, lt=1, description="level of the bootstrap intervals")


class CampaignConfig(ConfigModel):
    """A campaign: the experiments to run, and what to conclude from them."""

    name: Name = Field(description="folder under results/")
    title: Label = Field(description="title of the report")
    question: str | None = Field(None, description="what the campaign asks; shown in the report")
    seed: int = Field(0, ge=0, description="of initial weights, data order and run order")
    board: BoardConfig = Field(default_factory=BoardConfig, description="the board")
    measure: MeasureConfig = Field(
        default_factory=MeasureConfig, description="how runs are measured"
    )
    data: dict[Name, DataConfig] = Field(description="data sets by name")
    workloads: dict[Name, WorkloadConfig] = Field(min_length=1, description="workloads by name")
    mixes: dict[Name, tuple[Label | None, ...]] = Field(
        default_factory=dict,
        description="named mixes: a workload (or null for an empty slice) per slice of the layout, "
        "largest slice first",
    )
    job_lists: dict[Name, tuple[Label, ...]] = Field(
        default_factory=dict,
        description="named job lists: workloads, the one that needs the largest slice first. They "
        "are packed on a layout of any size: the i-th job on the i-th slice, and where there are "
        "more jobs than slices, in several runs, one after another",
    )
    experiments: tuple[ExperimentConfig, ...] = Field(min_length=1, description="what to run")
    plan: PlanConfig = Field(
        default_factory=PlanConfig, description="what the target `validate` plans and runs"
    )
    claims: tuple[Label, ...] = Field(
        ("config/claims.yaml",),
        description="files of claims to judge, relative to the repository; see docs/claims.md",
    )
    report: ReportConfig = Field(default_factory=ReportConfig, description="what the report shows")
    min_free_mib: int = Field(
        1024, ge=0, description="free disk that must be there before a campaign starts, MiB"
    )
    source: Literal["measure", "archive"] = Field(
        "measure",
        description="`measure`: make the runs; `archive`: take them from an unpacked archive of "
        "`wattslice archive`, with no GPU and without torch",
    )
    archive: str | None = Field(None, description="folder of the archive, for `source: archive`")
