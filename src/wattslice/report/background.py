"""Set-up and provenance of a campaign, as the report shows them; from its records only."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattslice import __version__
from wattslice.analysis.raw import RawFileError, read_run
from wattslice.config.models import CampaignConfig
from wattslice.files import canonical_json, sha256_text
from wattslice.records.energy import IdleRecord
from wattslice.records.run import RunRecord
from wattslice.report.charts.base import MODELLED, SIMULATED, FigureData
from wattslice.report.numbers import number

KEY_PACKAGES = (
    "torch",
    "torchvision",
    "timm",
    "transformers",
    "numpy",
    "scikit-learn",
    "nvidia-ml-py",
    "snakemake",
    "pydantic",
    "altair",
)
Facts = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Background:
    """What a reader needs to know beside the results; pairs are (name, value)."""

    board: Facts
    layouts: list[tuple[str, str, str]]  # layout, slices, idle power with its label
    workloads: list[tuple[str, ...]]  # name, model, task, data, batch, parameters, weights, note
    flags: list[tuple[str, str]]  # precision, framework switches as read back
    experiments: list[tuple[str, str, str]]  # name, question, runs asked for
    measure: Facts
    energy: list[str]  # statements of scope, each true by itself
    provenance: Facts
    packages: Facts
    all_packages: Facts


def gather(campaign_dir: Path, config: CampaignConfig, data: FigureData) -> Background:
    """Read what the records of a campaign say about board, software and origin."""
    records = list(_records(campaign_dir, data))
    inventory = _json(campaign_dir / "inventory.json")
    packages = _packages(records)
    return Background(
        board=_board(records, inventory),
        layouts=_layouts(campaign_dir, records),
        workloads=_workloads(config, records),
        flags=_flags(records),
        experiments=_experiments(config),
        measure=_measure(config),
        energy=_energy(config, data, records),
        provenance=_provenance(campaign_dir, config, records),
        packages=[(name, packages[name]) for name in KEY_PACKAGES if name in packages],
        all_packages=sorted(packages.items()),
    )


def _records(campaign_dir: Path, data: FigureData) -> Iterable[RunRecord]:
    for run_id in data.tables["runs"]["run_id"]:
        try:
            yield read_run(campaign_dir / "runs" / str(run_id))
        except RawFileError:
            # The tables were made of this record; without it they still stand.
            continue


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}


def _spread(values: Iterable[object]) -> str:
    """All different values, with how often each occurs where there are several."""
    counts = Counter(str(value) for value in values if value not in (None, "", ()))
    if not counts:
        return "not recorded"
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{value} ({n} runs)" for value, n in sorted(counts.items()))


def _range(values: Iterable[float | None], unit: str) -> str | None:
    have = [value for value in values if value is not None]
    if not have:
        return None
    low, high = number(min(have)), number(max(have))
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def _board(records: list[RunRecord], inventory: Mapping[str, Any]) -> Facts:
    boards = [record.board for record in records if record.board is not None]
    facts: Facts = []
    if boards:
        facts += [
            ("board", _spread(board.name for board in boards)),
            ("kind", _spread(board.kind for board in boards)),
            ("UUID", _spread(board.uuid for board in boards)),
            ("host", _spread(board.host for board in boards)),
        ]
        for name, values in (
            ("architecture", [board.architecture for board in boards]),
            ("driver", [board.driver_version for board in boards]),
            ("PCI address", [board.pci_bus_id for board in boards]),
        ):
            if any(values):
                facts.append((name, _spread(values)))
        if any(board.simulated for board in boards):
            facts.append(("simulated", "yes: no number of this campaign was measured"))
    elif inventory:
        identity = inventory.get("identity", {})
        facts += [(key, str(value)) for key, value in sorted(identity.items()) if value]
    capabilities = inventory.get("capabilities", {})
    if isinstance(capabilities, dict) and capabilities:
        facts.append(("precisions of the board", ", ".join(capabilities.get("precisions", []))))
        reason = (capabilities.get("energy") or {}).get("reason")
        if reason:
            facts.append(("energy sensors", str(reason)))
    for name, readings, unit in (
        ("temperature before runs", [_value(r, "temperature_c") for r in records], "°C"),
        ("power limit", [_value(r, "power_limit_w") for r in records], "W"),
        ("SM clock before runs", [_value(r, "sm_clock_mhz") for r in records], "MHz"),
    ):
        text = _range(readings, unit)
        if text:
            facts.append((name, text))
    return facts or [("board", "not recorded")]


def _value(record: RunRecord, reading: str) -> float | None:
    if record.health_before is None:
        return None
    value: float | None = getattr(record.health_before, reading).value
    return value


def _layouts(campaign_dir: Path, records: list[RunRecord]) -> list[tuple[str, str, str]]:
    seen: dict[str, RunRecord] = {}
    for record in records:
        layout = record.run_id.split("/")[0]
        if record.layout_state is not None:
            seen.setdefault(layout, record)
    rows = []
    for layout, record in sorted(seen.items()):
        assert record.layout_state is not None
        slices = "; ".join(
            f"{s.name}"
            + (f" = {s.profile}" if s.profile != s.name else "")
            + (f", cores {','.join(map(str, s.cores))}" if s.cores else "")
            + (f", {s.sm_count} SMs" if s.sm_count else "")
            + (f", {s.memory_mib} MiB" if s.memory_mib else "")
            for s in record.layout_state.slices
        )
        rows.append((layout, slices, _idle(campaign_dir / "idle" / f"{layout}.json")))
    return rows


def _idle(path: Path) -> str:
    if not path.is_file():
        return "not measured"
    idle = IdleRecord.model_validate_json(path.read_bytes())
    if idle.idle_w is None:
        return f"none: {idle.reason or 'no reason recorded'}"
    modelled = idle.energy.modelled or idle.energy.scope == "modelled"
    labels = [word for word, on in ((MODELLED, modelled), (SIMULATED, idle.simulated)) if on]
    return f"{number(idle.idle_w)} W" + (f" ({'; '.join(labels)})" if labels else "")


def _workloads(config: CampaignConfig, records: list[RunRecord]) -> list[tuple[str, ...]]:
    workers = {worker.workload: worker for record in records for worker in record.workers}
    rows: list[tuple[str, ...]] = []
    for name, workload in sorted(config.workloads.items()):
        worker = workers.get(name)
        data = config.data[workload.data]
        described = data.kind + (
            f", {data.sequence_length} tokens"
            if hasattr(data, "sequence_length")
            else f", {data.image_size} px"
        )
        parameters = worker.parameters if worker else None
        rows.append(
            (
                name,
                f"{workload.framework}: {workload.model}",
                workload.task,
                described,
                str(workload.batch_size),
                "not recorded" if parameters is None else f"{parameters:,}".replace(",", " "),
                (worker.weights if worker and worker.weights else None)
                or workload.weights
                or "random",
                workload.note or "",
            )
        )
    return rows


def _flags(records: list[RunRecord]) -> list[tuple[str, str]]:
    """The framework's switches as workers read them back, by precision."""
    by_precision: dict[str, set[str]] = {}
    for record in records:
        precision = record.run_id.split("/")[2]
        for worker in record.workers:
            if worker.precision_flags:
                text = ", ".join(f"{k}={v}" for k, v in sorted(worker.precision_flags.items()))
                by_precision.setdefault(precision, set()).add(text)
    return [
        (precision, " | ".join(sorted(texts))) for precision, texts in sorted(by_precision.items())
    ]


def _experiments(config: CampaignConfig) -> list[tuple[str, str, str]]:
    return [
        (
            experiment.name,
            experiment.question or "",
            f"layouts {', '.join(experiment.layouts)}; placements "
            f"{', '.join(experiment.placements)}; precisions {', '.join(experiment.precisions)}; "
            f"{experiment.repeats} repeats",
        )
        for experiment in config.experiments
    ]


def _measure(config: CampaignConfig) -> Facts:
    measure = config.measure
    window, warmup = measure.window, measure.warmup
    return [
        ("power sampler", f"{measure.sample_hz:g} Hz"),
        (
            "window",
            f"at least {window.min_s:g} s and {window.min_steps} steps, at most {window.max_s:g} s",
        ),
        (
            "warm-up",
            f"until step times vary by less than {100 * warmup.cv_max:g} % over "
            f"{warmup.cv_steps} steps, at most {warmup.max_s:g} s",
        ),
        ("idle measurement", f"{measure.idle_s:g} s per layout"),
        ("seed", str(config.seed)),
    ]


SCOPES = {
    "board": "the whole board, all its slices and its memory, by the board's own sensor",
    "module": "the whole module, GPU and CPU and memory together",
    "package": "the CPU package, by its RAPL counters; not the rest of the machine",
    "modelled": "a declared power model; nothing was measured",
}


def _energy(config: CampaignConfig, data: FigureData, records: list[RunRecord]) -> list[str]:
    scopes = data.scopes()
    methods = sorted(set(data.tables["runs"]["energy_method"].dropna()))
    statements = [
        f"Scope {scope}: energy is that of {SCOPES.get(scope, scope)}." for scope in scopes
    ]
    if methods:
        statements.append(f"Method: {', '.join(methods)}.")
    if not scopes:
        reasons = sorted({record.meter.reason for record in records if record.meter.reason})
        statements.append("No run has energy" + (f": {'; '.join(reasons)}." if reasons else "."))
    model = config.board.power_model
    if data.modelled and model is not None:
        statements.append(
            f"The model: P = {model.idle_w:g} W + {model.active_w_per_core:g} W × busy cores; "
            f"source: {model.source}."
        )
    if scopes:
        statements.append(
            "Samples per joule are the work of all busy slices over the gross energy of that "
            "scope in the same window; no energy is claimed for a single slice."
        )
    return statements


def _packages(records: list[RunRecord]) -> dict[str, str]:
    """Packages of the runs; a package with several versions shows them all."""
    versions: dict[str, set[str]] = {}
    for record in records:
        packages = record.environment.get("packages")
        if isinstance(packages, dict):
            for name, version in packages.items():
                versions.setdefault(str(name), set()).add(str(version))
    return {name: ", ".join(sorted(found)) for name, found in sorted(versions.items())}


def _provenance(campaign_dir: Path, config: CampaignConfig, records: list[RunRecord]) -> Facts:
    manifest = _json(campaign_dir / "campaign.json")
    digest = manifest.get("config_digest") or sha256_text(
        canonical_json(config.model_dump(mode="json"))
    )
    dirty = Counter(str(record.git.get("dirty")) for record in records)
    state = {"False": "no", "True": "yes", "None": "unknown (no git repository)"}
    facts = [
        ("campaign", config.name),
        ("config digest (sha256)", str(digest)),
        ("git commit of the runs", _spread(record.git.get("commit") for record in records)),
        (
            "uncommitted changes",
            _spread(state.get(key, key) for key in dirty.elements()),
        ),
        ("code digest of the runs", _spread(record.code_digest for record in records)),
        ("environment digest", _spread(record.environment_digest for record in records)),
        ("Python", _spread(record.environment.get("python") for record in records)),
        ("kernel", _spread(record.environment.get("kernel") for record in records)),
        ("hosts", _spread(record.host.get("name") for record in records)),
        ("wattslice that made this report", __version__),
    ]
    if records:
        facts.append(("first run started (UTC)", min(record.started_utc for record in records)))
        facts.append(("last run ended (UTC)", max(record.ended_utc for record in records)))
        facts.append(
            ("raw files", f"{sum(len(r.raw) for r in records)} files, each with its sha256")
        )
    return facts
