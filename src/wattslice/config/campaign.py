"""A campaign as the workflow needs it: checked config, runs, digests of the code of each stage."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from wattslice.config.archived import Archived
from wattslice.config.errors import ConfigError
from wattslice.config.expand import Run, definition, expand
from wattslice.config.load import load_campaign, read_yaml
from wattslice.config.models import BatchSearchConfig, CampaignConfig
from wattslice.files import canonical_json, sha256_text
from wattslice.provenance.code import code_digest

TRAIN = ("wattslice.train.launcher", "wattslice.train.worker")
# Config keys that say where the runs come from, not what they are.
ORIGIN = ("source", "archive")


class Campaign:
    """What the Snakefile asks for. Nothing here looks at a board or imports torch."""

    def __init__(self, raw: Mapping[str, Any], config_files: Iterable[Path] = ()) -> None:
        """Check the merged config and the files it was merged from.

        Raises ConfigError with every problem.
        """
        for path in config_files:
            read_yaml(path)  # a key given twice is lost in the merged config
        self.config: CampaignConfig = load_campaign(raw)
        self.runs: list[Run] = expand(self.config)

    @property
    def name(self) -> str:
        return self.config.name

    @cached_property
    def by_id(self) -> dict[str, Run]:
        return {run.run_id: run for run in self.runs}

    @cached_property
    def _rank(self) -> dict[str, int]:
        return {run.run_id: index for index, run in enumerate(self.runs)}

    def run_priority(self, run_id: str) -> int:
        """Higher runs first: layout by layout, block by block (see `expand`)."""
        return 2 * (len(self.runs) - self._rank[run_id])

    def layout_priority(self, layout: str) -> int:
        """Above the runs of the layout, below those of the layout before it."""
        return 2 * (len(self.runs) - self._first_of[layout]) + 1

    @cached_property
    def _first_of(self) -> dict[str, int]:
        """Place of the first run of each layout."""
        first: dict[str, int] = {}
        for index, run in enumerate(self.runs):
            first.setdefault(run.layout, index)
        return first

    @cached_property
    def layouts(self) -> list[str]:
        return list(dict.fromkeys(run.layout for run in self.runs))

    @cached_property
    def precisions(self) -> list[str]:
        return list(dict.fromkeys(run.precision for run in self.runs))

    @cached_property
    def workloads(self) -> list[str]:
        """Workloads that some run trains."""
        return list(dict.fromkeys(a.workload for run in self.runs for a in run.spec.assignments))

    @cached_property
    def config_json(self) -> str:
        """The config as canonical JSON; where the runs come from is no part of the campaign."""
        return canonical_json(self.config.model_dump(mode="json", exclude=set(ORIGIN)))

    @cached_property
    def archived(self) -> Archived | None:
        """The runs of an archive, for `source: archive`. Raises ConfigError if it is not usable."""
        if self.config.source == "measure":
            return None
        return Archived.of(Path(self.config.archive or ""), self.runs)

    @cached_property
    def train_code(self) -> str:
        """Digest of the code that measures, or that measured the runs of an archive."""
        return code_digest(*TRAIN) if self.archived is None else self.archived.code_digest

    @cached_property
    def board_json(self) -> str:
        """Which board, as canonical JSON."""
        return canonical_json(self.config.board.model_dump(mode="json"))

    @cached_property
    def idle_settings(self) -> str:
        """What the idle stage depends on, as canonical JSON."""
        fields = {"sample_hz", "idle_s", "cooldown"}
        return canonical_json(
            {
                "board": self.config.board.model_dump(mode="json"),
                "measure": self.config.measure.model_dump(mode="json", include=fields),
            }
        )

    @cached_property
    def longest_run_min(self) -> int:
        """What a cluster's job of one run may take, in minutes: all caps, and some to start."""
        measure = self.config.measure
        caps_s = (
            measure.start_timeout_s,
            measure.warmup.max_s,
            measure.window.max_s,
            measure.cooldown.max_s,
            max((self._search_s(name) for name in self.workloads), default=0.0),
        )
        return math.ceil(sum(caps_s) / 60) + 5

    def _search_s(self, name: str) -> float:
        """Cap of a workload's search for its batch size, with the last try, s."""
        workload = self.config.workloads[name]
        if workload.batch_size != "auto":
            return 0.0
        search = workload.batch_search or BatchSearchConfig()
        return search.max_s + self.config.measure.start_timeout_s

    @cached_property
    def request(self) -> str:
        """What the board and the libraries must be able to do, as canonical JSON."""
        return canonical_json(
            {
                "board": self.config.board.model_dump(mode="json"),
                "layouts": self.layouts,
                "precisions": self.precisions,
                "workloads": {name: definition(self.config, name) for name in self.workloads},
            }
        )

    def manifest(self, train_code: str | None = None) -> dict[str, Any]:
        """campaign.json: the config, and every run that the campaign consists of.

        `train_code` is the digest that the runs must have, where it is not that of this code.
        """
        code = train_code or self.train_code
        return {
            "schema_version": 1,
            "name": self.name,
            "config": self.config.model_dump(mode="json", exclude=set(ORIGIN)),
            "config_digest": sha256_text(self.config_json),
            "runs": [
                {
                    "run_id": run.run_id,
                    "spec_digest": run.spec.digest(),
                    "code_digest": code,
                    "experiments": list(run.experiments),
                }
                for run in self.runs
            ],
        }


def export_source(root: Path) -> None:
    """Have every job find the package, its scripts and this interpreter from anywhere."""
    source = str(root / "src")
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if source not in paths:
        os.environ.update(PYTHONPATH=os.pathsep.join([source, *filter(None, paths)]))
    os.environ.update(WATTSLICE_SCRIPTS=str(root / "workflow" / "scripts"))
    binaries = str(Path(sys.executable).parent)
    if shutil.which("python") != os.path.join(binaries, "python"):  # noqa: PTH118
        os.environ.update(PATH=os.pathsep.join([binaries, os.environ.get("PATH", "")]))


__all__ = ["TRAIN", "Campaign", "ConfigError", "export_source"]
