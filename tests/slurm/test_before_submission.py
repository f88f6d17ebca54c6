"""What stops a campaign before anything is submitted to a real SLURM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurm.campaigns import TABLES, SlurmClone, slurm_clone
from slurm.cluster import Cluster

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def clone(cluster: Cluster, lanes: object, tmp_path: Path) -> SlurmClone:
    """Beside the campaigns of the other tests, which are long (`lanes` starts them)."""
    return slurm_clone(cluster, tmp_path / "clone", ["solo"], 1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"rules": {"train": {"gres": "'gpu:7g.80gb:1'"}}},
            "asks for gpu:7g.80gb:1, and no node of partition gpu has it: n1, n2: gpu:3g.40gb:1",
        ),
        ({"slurm-status-command": "sacct"}, "--slurm-status-command squeue"),
        (
            {
                "default": {"slurm_partition": "night"},
                "slurm-requeue": False,
                "slurm-no-requeue": True,
            },
            "jobs of partition night may be pre-empted",
        ),
    ],
)
def test_a_campaign_that_the_cluster_cannot_run_is_refused(
    clone: SlurmClone, changes: dict[str, Any], said: str
) -> None:
    clone.use_profile(**changes)
    done = clone.snakemake(TABLES)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr
    assert clone.jobs("inventory", "partition", "idle", "train") == {}
