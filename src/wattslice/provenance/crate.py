"""The campaign as an RO-Crate with the profile Provenance Run Crate 0.5.

What Snakemake did comes from its own record of every output (rule, inputs, times); what a run was
made with comes from run.json, also where Snakemake's record is lost or the run is from an archive.
"""

from __future__ import annotations

import base64
import json
import mimetypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from rocrate.model.computationalworkflow import ComputationalWorkflow
from rocrate.model.contextentity import ContextEntity
from rocrate.rocrate import ROCrate

from wattslice import __version__
from wattslice.analysis.raw import read_run
from wattslice.files import sha256_file, write_json
from wattslice.provenance.manifest import CRATE, MANIFEST, campaign_files
from wattslice.provenance.snapshot import FOLDER as CODE
from wattslice.records.metrics import RunMetrics
from wattslice.records.run import RunRecord

RO_CRATE_VERSION = "1.1"
CONTEXT = "https://w3id.org/ro/terms/workflow-run/context"
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/ro/wfrun/provenance/0.5": "Provenance Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
SNAKEFILE = f"{CODE}/Snakefile"
_ENGINE = "#snakemake"
_TRAIN = "train"
_COMPLETED = "http://schema.org/CompletedActionStatus"
_UNIT_CODES = {"s": "SEC", "J": "JOU"}  # UN/CEFACT
_LAST = frozenset({CRATE, MANIFEST})
_LICENSES = {"MIT": "https://spdx.org/licenses/MIT"}
# The only files of the code that are described one by one; the others are in its folder.
_CODE_FILES = (f"{CODE}/LICENSE", f"{CODE}/CITATION.cff")
_TYPES = {
    ".parquet": "application/vnd.apache.parquet",
    ".diff": "text/x-diff",
    ".md": "text/markdown",
}
_MEANING = (
    ("runs/", "run.json", "Record of one run: spec, environment, board, raw files with sha256"),
    ("runs/", "metrics.json", "Figures of one run, made from its raw files only"),
    ("runs/", "steps.parquet", "Raw samples: start and end of every training step"),
    ("runs/", "power.parquet", "Raw samples of the power meter"),
    ("idle/", "", "Idle power of the board in one layout"),
    ("partitions/", "", "A layout as it came out on the board"),
    ("tables/", "", "Tidy table of the campaign"),
    ("analysis/", "", "What is concluded from the tables"),
    ("figures/", "", "Figure"),
    ("report/", "", "Report"),
    ("starts/", "", "What the campaign was started with"),
    ("campaign.json", "", "The config, and every run that the campaign consists of"),
    ("inventory.json", "", "What the board is and can do"),
)


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the workflow, as Snakemake recorded it. Times in s since the epoch."""

    rule: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    command: str
    start: float
    end: float


def read_jobs(metadata: Path, prefix: str) -> list[Job]:
    """The jobs that made files below `prefix` (results/<campaign>), oldest first.

    `metadata` is .snakemake/metadata. A file of another version of Snakemake that cannot be read is
    passed over, as is that of a job that is not finished.
    """
    # Outputs of one job share its log; each output has a start of its own, some µs apart.
    jobs: dict[tuple[str, str], tuple[list[dict[str, Any]], list[str]]] = {}
    for path in sorted(metadata.rglob("*")) if metadata.is_dir() else ():
        entry = _metadata(path, metadata)
        if entry is None:
            continue
        name, content = entry
        if not name.startswith(f"{prefix}/"):
            continue
        contents, outputs = jobs.setdefault((content["rule"], str(content["log"])), ([], []))
        contents.append(content)
        outputs.append(name.removeprefix(f"{prefix}/"))
    found = [
        Job(
            rule=contents[0]["rule"],
            inputs=tuple(
                name.removeprefix(f"{prefix}/")
                for name in contents[0]["input"]
                if name.startswith(f"{prefix}/")
            ),
            outputs=tuple(sorted(outputs)),
            command=" ".join((contents[0].get("shellcmd") or "").split()),
            start=min(content["starttime"] for content in contents),
            end=max(content["endtime"] for content in contents),
        )
        for contents, outputs in jobs.values()
    ]
    return sorted(found, key=lambda job: (job.start, job.rule, job.outputs))


def _metadata(path: Path, root: Path) -> tuple[str, dict[str, Any]] | None:
    """Output and record of one file; a long name is cut into folders that begin with @."""
    encoded = "".join(part.removeprefix("@") for part in path.relative_to(root).parts)
    try:
        name = base64.b64decode(encoded, validate=True).decode()
        content = json.loads(path.read_text(encoding="utf-8"))
        complete = not content["incomplete"] and content["rule"] and content["endtime"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (name, content) if complete else None


def write_crate(campaign: Path, metadata: Path, prefix: str, engine_version: str) -> Path:
    """Write ro-crate-metadata.json into the campaign's folder; the code has to be in it already.

    `prefix` is the folder as Snakemake knows it, e.g. results/default.
    """
    crate = _Crate(campaign, engine_version)
    jobs = read_jobs(metadata, prefix)
    crate.describe(jobs)
    path = campaign / CRATE
    write_json(path, crate.metadata())
    return path


class _Crate:
    def __init__(self, campaign: Path, engine_version: str) -> None:
        self.folder = campaign
        self.content = json.loads((campaign / "campaign.json").read_text(encoding="utf-8"))
        self.records = {
            run["run_id"]: read_run(campaign / "runs" / run["run_id"])
            for run in self.content["runs"]
        }
        self.citation = yaml.safe_load((campaign / CODE / "CITATION.cff").read_text("utf-8"))
        self.engine_version = engine_version
        self.crate = ROCrate(gen_preview=False, version=RO_CRATE_VERSION)
        self.crate.metadata.extra_contexts.append(CONTEXT)
        self.files: dict[str, Any] = {}

    def metadata(self) -> dict[str, Any]:
        generated = self.crate.metadata.generate()
        assert isinstance(generated, dict)
        return generated

    def describe(self, jobs: Sequence[Job]) -> None:
        self._root()
        self._files()
        # Jobs of an older config, and those that make the crate itself, are no part of it.
        jobs = [job for job in jobs if set(job.outputs) & (self.files.keys() - _LAST)]
        jobs = sorted([*self._archived(jobs), *jobs], key=lambda job: job.start)
        tools = {rule: self._tool(rule) for rule in dict.fromkeys(job.rule for job in jobs)}
        workflow = self._workflow(tools)
        actions = [(job, self._action(job, tools[job.rule], i)) for i, job in enumerate(jobs)]
        self._run(workflow, actions)

    def _archived(self, jobs: Sequence[Job]) -> list[Job]:
        """Jobs of the runs that Snakemake has no record of making."""
        made = {name for job in jobs if job.rule == _TRAIN for name in job.outputs}
        return [
            Job(
                rule=_TRAIN,
                inputs=(f"partitions/{run_id.partition('/')[0]}.json",),
                outputs=tuple(
                    f"runs/{run_id}/{name}"
                    for name in ("run.json", *(raw.name for raw in record.raw))
                ),
                command="",
                start=datetime.fromisoformat(record.started_utc).timestamp(),
                end=datetime.fromisoformat(record.ended_utc).timestamp(),
            )
            for run_id, record in self.records.items()
            if f"runs/{run_id}/run.json" not in made
        ]

    # --- entities ------------------------------------------------------------------------------

    def _entity(self, id_: str, type_: str | list[str], **properties: Any) -> Any:
        kept = {
            key: value[0] if isinstance(value, list) and len(value) == 1 else value
            for key, value in properties.items()
            if value not in (None, [], "")
        }
        return self.crate.add(ContextEntity(self.crate, id_, {"@type": type_, **kept}))

    def _root(self) -> None:
        config, root = self.content["config"], self.crate.root_dataset
        ended = [record.ended_utc for record in self.records.values()]
        root["name"] = config["title"]
        simulated = any(record.simulated for record in self.records.values())
        root["description"] = (
            f"Campaign {config['name']}: {config['question'] or config['title']} Training "
            "throughput and energy of models on slices of one board, from raw step times and "
            "power samples to tables, figures and report."
            + (" Simulated, not a measurement." if simulated else "")
        )
        root["datePublished"] = max(ended, default="1970-01-01")
        root["keywords"] = "training throughput, energy, GPU partitioning, MIG, reproducibility"
        name = str(self.citation["license"])
        root["license"] = self._entity(
            _LICENSES.get(name, f"https://spdx.org/licenses/{name}"),
            "CreativeWork",
            name=f"{name} License",
            description=f"The text is in {CODE}/LICENSE",
        )
        authors = [
            self._entity(f"#author-{i}", "Organization", name=author["name"])
            for i, author in enumerate(self.citation["authors"], 1)
            if "name" in author
        ]
        if authors:
            root["author"] = authors
        for profile, title in PROFILES.items():
            version = profile.rsplit("/", 1)[1]
            self._entity(profile, "CreativeWork", name=title, version=version)
        root["conformsTo"] = [{"@id": p} for p in PROFILES]
        self.crate.metadata["conformsTo"] = [
            {"@id": f"https://w3id.org/ro/crate/{RO_CRATE_VERSION}"},
            {"@id": "https://w3id.org/workflowhub/workflow-ro-crate/1.0"},
        ]
        papers = [self._paper(reference) for reference in self.citation.get("references", ())]
        if papers:
            root["citation"] = papers

    def _paper(self, reference: dict[str, Any]) -> Any:
        names = [author.get("family-names") for author in reference.get("authors", ())]
        return self._entity(
            f"https://doi.org/{reference['doi']}",
            "ScholarlyArticle",
            name=" ".join(reference["title"].split()),
            datePublished=str(reference.get("year", "")),
            author=[
                self._entity(f"#cited-{name}".replace(" ", "-"), "Person", name=name)
                for name in names
                if name
            ],
        )

    def _files(self) -> None:
        for name in campaign_files(self.folder):
            if name == CRATE or (name.startswith(f"{CODE}/") and name not in _CODE_FILES):
                continue
            path = self.folder / name
            properties = {
                "name": name,
                "description": _description(name),
                "contentSize": str(path.stat().st_size),
                "sha256": sha256_file(path),
                "encodingFormat": _media_type(name),
            }
            self.files[name] = self.crate.add_file(
                path, dest_path=name, properties={k: v for k, v in properties.items() if v}
            )
        self.files[MANIFEST] = self.crate.add_file(
            dest_path=MANIFEST,
            properties={
                "name": MANIFEST,
                "description": "sha256 of every file of the campaign; checks itself",
                "encodingFormat": "application/json",
            },
        )
        self.crate.add_dataset(
            dest_path=f"{CODE}/",
            properties={
                "name": "Code",
                "description": "The workflow and the package wattslice as they made these results",
                "version": __version__,
            },
        )

    def _tool(self, rule: str) -> Any:
        return self._entity(
            f"#rule-{rule}",
            "SoftwareApplication",
            name=f"rule {rule}",
            description=f"The rule {rule} of the workflow, in {CODE}/workflow/rules",
            softwareVersion=__version__,
            url="https://snakemake.github.io",
        )

    def _workflow(self, tools: dict[str, Any]) -> Any:
        path = self.folder / SNAKEFILE
        language = self._entity(
            "https://w3id.org/workflowhub/workflow-ro-crate#snakemake",
            "ComputerLanguage",
            name="Snakemake",
            identifier="https://doi.org/10.1093/bioinformatics/bts480",
            url="https://snakemake.readthedocs.io",
        )
        workflow = ComputationalWorkflow(
            self.crate,
            path,
            SNAKEFILE,
            properties={
                "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
                "name": "wattslice",
                "description": self.citation["title"],
                "version": __version__,
                "sha256": sha256_file(path),
                "contentSize": str(path.stat().st_size),
            },
        )
        self.crate.add(workflow)
        workflow["programmingLanguage"] = language
        workflow["conformsTo"] = self._entity(
            "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE",
            "CreativeWork",
            name="Bioschemas ComputationalWorkflow",
            version="1.0",
        )
        workflow["license"] = self.crate.root_dataset["license"]
        self.crate.root_dataset["mainEntity"] = workflow
        workflow["input"] = [
            self._parameter("config", "campaign.json", "The config of the campaign")
        ]
        outputs = ("report/index.html", "tables/summary.csv", "analysis/ratios.json")
        workflow["output"] = [
            self._parameter(Path(name).stem, name, _description(name) or name)
            for name in outputs
            if name in self.files
        ]
        workflow["hasPart"] = list(tools.values())
        workflow["step"] = [
            self._entity(
                f"{SNAKEFILE}#{rule}",
                "HowToStep",
                name=rule,
                position=position,
                workExample=tool,
            )
            for position, (rule, tool) in enumerate(tools.items())
        ]
        return workflow

    def _parameter(self, name: str, file: str, description: str) -> Any:
        parameter = self._entity(
            f"{SNAKEFILE}#parameter-{name}",
            "FormalParameter",
            additionalType="File",
            name=name,
            description=description,
            conformsTo={"@id": "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"},
        )
        parameter["workExample"] = self.files[file]
        self.files[file]["exampleOfWork"] = parameter
        return parameter

    # --- actions -------------------------------------------------------------------------------

    def _action(self, job: Job, tool: Any, index: int) -> Any:
        record = self._record_of(job)
        name = f"{job.rule} {record.run_id}" if record else job.rule
        action = self._entity(
            f"#action-{index}",
            "CreateAction",
            name=name,
            description=job.command[:2000],
            instrument=tool,
            startTime=record.started_utc if record else _time(job.start),
            endTime=record.ended_utc if record else _time(job.end),
            object=self._known(job.inputs),
            result=self._known(job.outputs),
            actionStatus=_COMPLETED,
        )
        if record is not None:
            self._circumstances(action, record)
        return action

    def _known(self, names: Iterable[str]) -> list[Any]:
        return [self.files[name] for name in names if name in self.files]

    def _record_of(self, job: Job) -> RunRecord | None:
        if job.rule != _TRAIN:
            return None
        return next(
            (
                self.records.get(name.removeprefix("runs/").removesuffix("/run.json"))
                for name in job.outputs
                if name.endswith("/run.json")
            ),
            None,
        )

    def _circumstances(self, action: Any, record: RunRecord) -> None:
        """What a run was made with, and what it took."""
        name = record.run_id
        facts = {
            "outcome": record.outcome,
            "spec digest (sha256)": record.spec_digest,
            "code digest (sha256)": record.code_digest,
            "environment digest (sha256)": record.environment_digest,
            "git commit": record.git.get("commit"),
            "board": None if record.board is None else f"{record.board.name} {record.board.uuid}",
            "host": record.host.get("name"),
        }
        action["additionalProperty"] = [
            self._entity(f"#{name}/{key}".replace(" ", "-"), "PropertyValue", name=key, value=value)
            for key, value in facts.items()
            if value is not None
        ]
        variables = record.environment.get("variables")
        if isinstance(variables, dict) and variables:
            action["environment"] = [
                self._entity(f"#{name}/{key}", "PropertyValue", name=key, value=value)
                for key, value in variables.items()
            ]
        image = record.container.get("image")
        if record.container.get("kind") and image:
            kind = "SIFImage" if record.container["kind"] == "apptainer" else "DockerImage"
            action["containerImage"] = self._entity(
                f"#image-{image}",
                "ContainerImage",
                name=image,
                additionalType={"@id": f"https://w3id.org/ro/terms/workflow-run#{kind}"},
            )
        action["resourceUsage"] = self._usage(name)

    def _usage(self, run_id: str) -> list[Any]:
        path = self.folder / "runs" / run_id / "metrics.json"
        metrics = RunMetrics.model_validate_json(path.read_bytes())
        energy = metrics.energy
        usage = []
        if metrics.window_s.value is not None:
            usage.append(("window", metrics.window_s.value, "s", "length of the measured window"))
        if energy is not None and energy.gross_j is not None:
            what = f"energy of scope {energy.scope} in the measured window, by {energy.method}"
            mark = " (modelled, not measured)" if energy.modelled else ""
            mark += " (simulated)" if energy.simulated else ""
            usage.append(("energy", energy.gross_j, "J", what + mark))
        return [
            self._entity(
                f"#{run_id}/{key}",
                "PropertyValue",
                name=key,
                propertyID=f"https://w3id.org/ro/terms/workflow-run#{key}",
                value=value,
                unitText=unit,
                unitCode=_UNIT_CODES[unit],
                description=description,
            )
            for key, value, unit, description in usage
        ]

    def _run(self, workflow: Any, actions: Sequence[tuple[Job, Any]]) -> None:
        """The run of the whole workflow, and the engine that organised it."""
        times = [a[key] for _, a in actions for key in ("startTime", "endTime")]
        whole = self._entity(
            "#campaign",
            "CreateAction",
            name=f"Campaign {self.content['name']}",
            description="The whole workflow, from the config to the report",
            instrument=workflow,
            startTime=min(times, default=None),
            endTime=max(times, default=None),
            object=[self.files["campaign.json"]],
            result=self._known(("report/index.html", "tables/summary.csv", "analysis/ratios.json")),
            actionStatus=_COMPLETED,
        )
        engine = self._entity(
            _ENGINE,
            "SoftwareApplication",
            name=f"Snakemake {self.engine_version}",
            softwareVersion=self.engine_version,
            url="https://snakemake.github.io",
        )
        controls = [
            self._entity(
                f"#control-{i}",
                "ControlAction",
                name=f"orchestrate {action['name']}",
                instrument={"@id": f"{SNAKEFILE}#{job.rule}"},
                object=action,
            )
            for i, (job, action) in enumerate(actions)
        ]
        self._entity(
            "#organize",
            "OrganizeAction",
            name=f"Run of Snakemake {self.engine_version}",
            instrument=engine,
            startTime=whole.get("startTime"),
            endTime=whole.get("endTime"),
            object=controls,
            result=whole,
        )
        self.crate.root_dataset["mentions"] = [whole, *(action for _, action in actions)]


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _description(name: str) -> str:
    for start, end, meaning in _MEANING:
        if name.startswith(start) and name.endswith(end):
            return meaning
    return ""


def _media_type(name: str) -> str:
    known = _TYPES.get(Path(name).suffix)
    return known or mimetypes.guess_type(name)[0] or ""
