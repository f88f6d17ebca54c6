"""The links from one run back to config, code, environment, board and raw samples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from wattslice.analysis.raw import RawFileError, read_run
from wattslice.config.campaign import TRAIN
from wattslice.config.errors import ConfigError
from wattslice.config.expand import Run, expand
from wattslice.config.load import load_campaign
from wattslice.config.spec import RunSpec
from wattslice.files import canonical_json, sha256_file, sha256_text
from wattslice.provenance.code import SOURCE_ROOT, code_files
from wattslice.provenance.environment import digest
from wattslice.provenance.manifest import (
    MANIFEST,
    Manifest,
    ManifestError,
    campaign_runs,
    check_files,
    read_manifest,
)
from wattslice.provenance.rebuild import Rebuilt, differing_values
from wattslice.provenance.snapshot import FOLDER as CODE
from wattslice.provenance.snapshot import snapshot_files
from wattslice.provenance.start import FOLDER as STARTS
from wattslice.provenance.start import Start, read_starts
from wattslice.provenance.tree import Node
from wattslice.records.run import RunRecord

_SHOWN_PACKAGES = ("torch", "timm", "transformers")


class NotACampaignError(ValueError):
    """The path does not lie in the folder of a campaign, or nothing there has that name."""


class Chain:
    """A campaign's folder, and what its files say about where they come from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def around(cls, path: Path) -> Chain:
        """The campaign that a path lies in. Raises NotACampaignError."""
        path = path.resolve()
        for folder in (path, *path.parents):
            if (folder / "campaign.json").is_file():
                return cls(folder)
        raise NotACampaignError(
            f"{path} does not lie in the folder of a campaign: no folder above it has a "
            "campaign.json"
        )

    @cached_property
    def content(self) -> dict[str, Any]:
        """campaign.json."""
        content = json.loads((self.folder / "campaign.json").read_text(encoding="utf-8"))
        assert isinstance(content, dict)
        return content

    @cached_property
    def runs(self) -> dict[str, dict[str, Any]]:
        return campaign_runs(self.folder)

    @cached_property
    def expanded(self) -> dict[str, Run]:
        """The runs that the config of campaign.json expands to, by id; raises ConfigError."""
        return {run.run_id: run for run in expand(load_campaign(self.content["config"]))}

    @cached_property
    def starts(self) -> dict[str, Start]:
        return read_starts(self.folder)

    @cached_property
    def manifest(self) -> Manifest | ManifestError:
        try:
            return read_manifest(self.folder / MANIFEST)
        except ManifestError as error:
            return error

    def other_code(self) -> list[str]:
        """Files of the package in which this checkout differs from the campaign's copy of it."""
        if isinstance(self.manifest, ManifestError):
            return []
        start = f"{CODE}/src/"
        copied = {
            name.removeprefix(start): entry.sha256
            for name, entry in self.manifest.files.items()
            if name.startswith(start)
        }
        here = {
            name.removeprefix("src/"): sha256_file(SOURCE_ROOT.parent / name)
            for name in snapshot_files(SOURCE_ROOT.parent)
            if name.startswith("src/")
        }
        other = (n for n in copied.keys() | here.keys() if copied.get(n) != here.get(n))
        return sorted(other, key=lambda name: (name.startswith("wattslice/provenance/"), name))

    def tell_code(self, node: Node) -> None:
        """Say where results were made again by other code than the campaign's."""
        other = self.other_code()
        if other:
            shown = ", ".join(other[:3]) + (", …" if len(other) > 3 else "")
            node.add(
                "made again by other code",
                f"{len(other)} files of this checkout differ from {CODE}/ ({shown}); what does not "
                f"hold may come from that: try PYTHONPATH={self.folder / CODE / 'src'}",
                files=other,
            )

    # --- single files --------------------------------------------------------------------------

    def file(self, node: Node, name: str) -> Node:
        """State whether a file is the one that the manifest lists."""
        if isinstance(self.manifest, ManifestError):
            return node.add(name, str(self.manifest), "bad")
        entry = self.manifest.files.get(name)
        if entry is None:
            return node.add(name, f"is not in {MANIFEST}: made after it", "bad")
        one = self.manifest.model_copy(update={"files": {name: entry}})
        problems = check_files(self.folder, one)
        if problems:
            return node.add(name, problems[0].problem, "bad")
        return node.add(
            name, f"sha256 {entry.sha256[:12]}… as in {MANIFEST}", "ok", sha256=entry.sha256
        )

    def campaign(self, node: Node) -> None:
        """State whether campaign.json is in itself consistent."""
        self.file(node, "campaign.json")
        config_digest = self.content["config_digest"]
        found = sha256_text(canonical_json(self.content["config"]))
        if found != config_digest:
            text = f"campaign.json says {config_digest}, its config has {found}"
            node.add("config digest", text, "bad")
            return
        node.add("config digest", f"{config_digest[:12]}… holds", "ok", sha256=config_digest)
        made = [name for name, start in self.starts.items() if start.config_digest == config_digest]
        if made:
            node.add("started", "; ".join(self._start(name) for name in made), "ok", starts=made)
        else:
            node.add("started", f"no file in {STARTS}/ has this config", "info")

    def _start(self, name: str) -> str:
        start = self.starts[name]
        commit = start.git.get("commit")
        state = " with changes" if start.git.get("dirty") else ""
        where = f"commit {str(commit)[:12]}{state}" if commit else "no git commit"
        return f"{start.started_utc} {' '.join(start.argv)} ({where}; {STARTS}/{name})"

    # --- one run -------------------------------------------------------------------------------

    def run(self, parent: Node, run_id: str, rebuilt: Rebuilt | None) -> Node:
        """Add all that one run rests on; with `rebuilt` its figures are made again and compared."""
        node = parent.add(f"run {run_id}")
        node.folds = True
        folder = self.folder / "runs" / run_id
        try:
            record = read_run(folder)
        except RawFileError as error:
            node.state, node.text = "bad", str(error)
            return node
        node.text = record.outcome + (f" ({record.reason})" if record.reason else "")
        node.state = "ok"
        node.data = {"run_id": run_id, "outcome": record.outcome}
        self._record(node, run_id, record)
        self._config(node, run_id, record)
        self._code(node, run_id, record)
        self._environment(node, record)
        _board(node, record)
        self._raw(node, run_id, record)
        self._metrics(node, run_id, rebuilt)
        return node

    def _record(self, node: Node, run_id: str, record: RunRecord) -> None:
        self.file(node, f"runs/{run_id}/run.json")
        if record.run_id != run_id:
            node.add("run id", f"run.json is the record of {record.run_id}", "bad")
        node.add(
            "made",
            f"{record.started_utc} to {record.ended_utc} on {record.host.get('name')}, attempt "
            f"{record.attempt}",
            host=record.host,
            container=record.container,
            slurm=record.slurm,
        )

    def _config(self, node: Node, run_id: str, record: RunRecord) -> None:
        found = RunSpec.model_validate(record.spec).digest()
        asked = self.runs.get(run_id, {}).get("spec_digest")
        keys = self._keys(run_id)
        if found != record.spec_digest:
            text = f"run.json says {record.spec_digest}, its spec has {found}"
            node.add("spec", text, "bad")
        elif asked != found:
            node.add("spec", f"the campaign asks for {asked}, the run has {found}", "bad")
        else:
            node.add("spec", f"{found[:12]}… holds", "ok", sha256=found, spec=record.spec)
        try:
            run = self.expanded.get(run_id)
        except ConfigError as error:
            node.add("config", f"not usable with this code: {error}", "bad", keys=keys)
            return
        expanded = None if run is None else run.spec.digest()
        if expanded == asked:
            node.add("config", ", ".join(keys), "ok", keys=keys)
        else:
            node.add(
                "config",
                f"the config of campaign.json expands to spec {expanded}, not {asked}; the code "
                "that made the campaign may expand it in another way",
                "bad",
                keys=keys,
            )

    def _keys(self, run_id: str) -> list[str]:
        """Config keys that the run follows from."""
        config = self.content["config"]
        layout, placement, *_ = run_id.split("/")
        names = self.runs.get(run_id, {}).get("experiments", [])
        keys = [
            f"experiments[{index}] ({experiment['name']})"
            for index, experiment in enumerate(config["experiments"])
            if experiment["name"] in names
        ]
        workloads = [placement.split(".")[0]]
        if placement.startswith("mix."):
            mix = placement.removeprefix("mix.")
            keys.append(f"mixes.{mix}")
            workloads = [name for name in config["mixes"].get(mix, []) if name]
        for workload in dict.fromkeys(workloads):
            keys.append(f"workloads.{workload}")
            if (data := config["workloads"].get(workload, {}).get("data")) is not None:
                keys.append(f"data.{data}")
        return [*dict.fromkeys(keys), f"layout {layout}", "measure", "board", "seed"]

    def _code(self, node: Node, run_id: str, record: RunRecord) -> None:
        asked = self.runs.get(run_id, {}).get("code_digest")
        if record.code_digest != asked:
            text = f"the campaign asks for {asked}, run.json has {record.code_digest}"
            node.add("code", text, "bad")
            return
        commit = record.git.get("commit")
        state = {True: " with changes", False: ""}.get(bool(record.git.get("dirty")), "")
        where = f"commit {str(commit)[:12]}{state}" if commit else "no git commit"
        known = self._files_of(record.code_digest)
        code = node.add("code", f"{record.code_digest[:12]}…, {where}", "ok", git=record.git)
        code.data["sha256"] = record.code_digest
        if known is None:
            code.add("files", f"no start in {STARTS}/ lists the files of this digest")
            return
        code.add("files", f"{len(known)} files give this digest", "ok", files=known)
        here = code_files(*TRAIN)
        other = sorted(
            name for name in known.keys() | here.keys() if known.get(name) != here.get(name)
        )
        if other:
            shown = ", ".join(other[:5]) + (", …" if len(other) > 5 else "")
            code.add("this checkout", f"measures with other code, in {len(other)} files: {shown}")
        else:
            code.add("this checkout", "has the same measuring code")

    def _files_of(self, code_digest: str) -> Mapping[str, str] | None:
        for start in self.starts.values():
            if start.train_code.digest == code_digest and start.train_code.holds():
                return start.train_code.files
        return None

    def _environment(self, node: Node, record: RunRecord) -> None:
        found = digest(record.environment)
        if found != record.environment_digest:
            text = f"run.json says {record.environment_digest}, its environment has {found}"
            node.add("environment", text, "bad")
            return
        node.add(
            "environment",
            f"{found[:12]}… holds: {_software(record)}",
            "ok",
            sha256=found,
            environment=record.environment,
        )

    def _raw(self, node: Node, run_id: str, record: RunRecord) -> None:
        for raw in record.raw:
            path = self.folder / "runs" / run_id / raw.name
            name = f"runs/{run_id}/{raw.name}"
            if not path.is_file():
                node.add(name, "raw file is missing", "bad")
            elif (found := sha256_file(path)) != raw.sha256:
                text = f"was changed after the run: sha256 is {found}, run.json says {raw.sha256}"
                node.add(name, text, "bad")
            else:
                text = f"{_samples(record, raw.name)}sha256 {found[:12]}… as in run.json"
                node.add(name, text, "ok", sha256=found, bytes=raw.bytes)

    def _metrics(self, node: Node, run_id: str, rebuilt: Rebuilt | None) -> None:
        name, idle = f"runs/{run_id}/metrics.json", f"idle/{run_id.partition('/')[0]}.json"
        file = self.file(node, name)
        if (self.folder / idle).is_file():
            self.file(node, idle)
        path = self.folder / name
        if not path.is_file():
            return
        try:
            stored = json.loads(path.read_bytes())
            run_sha256 = stored["run_sha256"]
        except (ValueError, KeyError, TypeError):
            file.state, file.text = "bad", "was changed: it is no metrics record any more"
            return
        if run_sha256 != sha256_file(self.folder / "runs" / run_id / "run.json"):
            file.state, file.text = "bad", f"was made of another run.json ({run_sha256})"
        if rebuilt is None:
            return
        try:
            again = rebuilt.metrics(run_id).model_dump(mode="json")
        except (RawFileError, ValidationError, ValueError) as error:
            file.add("made again from raw samples", str(error), "bad")
            return
        differs = differing_values(stored, again)
        if differs is not None:
            file.add("made again from raw samples", f"{name}: {differs}", "bad")
        else:
            file.add("made again from raw samples", f"all figures are equal (with {idle})", "ok")


def _software(record: RunRecord) -> str:
    packages = record.environment.get("packages")
    torch = record.environment.get("torch")
    facts = [f"Python {record.environment.get('python')}"]
    if isinstance(packages, dict):
        facts += [f"{name} {packages[name]}" for name in _SHOWN_PACKAGES if name in packages]
    if isinstance(torch, dict):
        facts += [
            f"{label} {torch[key]}"
            for key, label in (("cuda", "CUDA build"), ("cudnn", "cuDNN"))
            if torch.get(key)
        ]
    if record.board is not None and record.board.driver_version:
        facts.append(f"driver {record.board.driver_version}")
    return ", ".join([*facts, f"kernel {record.environment.get('kernel')}"])


def _board(node: Node, record: RunRecord) -> None:
    if record.board is None:
        node.add("board", "not recorded")
        return
    slices = [] if record.layout_state is None else record.layout_state.slices
    busy = {worker.slice.index for worker in record.workers}
    shown = ", ".join(f"{s.profile}{' busy' if s.index in busy else ' empty'}" for s in slices)
    simulated = " (simulated)" if record.board.simulated else ""
    board = node.add(
        "board",
        f"{record.board.name}{simulated} {record.board.uuid}, slices: {shown or 'none'}",
        identity=record.board.model_dump(mode="json"),
    )
    for label, health in (("before", record.health_before), ("after", record.health_after)):
        if health is not None:
            readings = {
                key: value.value
                for key, value in (
                    ("temperature_c", health.temperature_c),
                    ("power_limit_w", health.power_limit_w),
                    ("sm_clock_mhz", health.sm_clock_mhz),
                    ("memory_clock_mhz", health.memory_clock_mhz),
                )
                if value.value is not None
            }
            board.data[f"health_{label}"] = readings
    meter = record.meter
    board.add(
        "meter",
        meter.reason
        or f"{meter.method}, scope {meter.scope}, {meter.samples} samples at {meter.rate_hz:g} Hz",
        **meter.model_dump(mode="json"),
    )


def _samples(record: RunRecord, name: str) -> str:
    if name == "power.parquet":
        return f"{record.meter.samples} power samples, "
    if name == "steps.parquet":
        return f"{sum(worker.steps for worker in record.workers)} steps, "
    return ""
