import re
import subprocess
import sys
from pathlib import Path

SOURCE = Path(workflow.basedir) / "src"
if str(SOURCE) not in sys.path:
    sys.path.insert(0, str(SOURCE))

from snakemake.exceptions import WorkflowError

from wattslice.config.campaign import TRAIN, Campaign, ConfigError, export_source
from wattslice.config.start import (
    CampaignLock,
    check_disk,
    pending_runs,
    preflight_passed,
)
from wattslice.files import sha256_file, sha256_text
from wattslice.provenance.code import code_digest
from wattslice.provenance.manifest import VALIDATION
from wattslice.provenance.snapshot import snapshot_digest
from wattslice.provenance.start import Request, record_start
from wattslice.report.figure_list import FIGURES
from wattslice.train import progress

export_source(Path(workflow.basedir))

try:
    CAMPAIGN = Campaign(config, [Path(name) for name in workflow.configfiles])
    MEASURES = CAMPAIGN.archived is None
except ConfigError as error:
    raise WorkflowError(f"the config is not usable:\n{error}")

RESULTS = f"results/{CAMPAIGN.name}"
FORMATS = CAMPAIGN.config.report.formats
LOCK = CampaignLock(Path(RESULTS))
CODE_SNAPSHOT = snapshot_digest(Path(workflow.basedir))


def any_of(names):
    """A regular expression that matches just these names (they hold dots and plus signs)."""
    return "|".join(re.escape(name) for name in dict.fromkeys(names))


pathvars:
    campaign=RESULTS,
    run=f"{RESULTS}/runs/{{layout}}/{{placement}}/{{precision}}/rep{{repeat}}",
    run_log="{layout}/{placement}/{precision}/rep{repeat}",


wildcard_constraints:
    layout=any_of(run.layout for run in CAMPAIGN.runs),
    placement=any_of(run.placement for run in CAMPAIGN.runs),
    precision=any_of(run.precision for run in CAMPAIGN.runs),
    repeat=r"[1-9]\d*",
    figure=any_of(figure.name for figure in FIGURES),


# What is quick and needs no board is not worth a cluster's job.
localrules:
    metrics,
    aggregate,
    analyse,
    claims,
    figures,
    report,


# One board, one run: a default that --resources of other names cannot drop.
if "board" not in workflow.global_resources:
    workflow.register_resource("board", 1)


def run_of(wildcards):
    """The run that wildcards name."""
    return CAMPAIGN.by_id[
        f"{wildcards.layout}/{wildcards.placement}/{wildcards.precision}/rep{wildcards.repeat}"
    ]


def run_id(wildcards):
    return run_of(wildcards).run_id


def run_spec(wildcards):
    return run_of(wildcards).spec.canonical()


def run_priority(wildcards):
    """Keeps the runs of one layout together, in the campaign's randomised order."""
    return 1000 + CAMPAIGN.run_priority(run_id(wildcards))


def idle_priority(wildcards):
    """Just before the runs of its layout, so that the layout is made once for both."""
    return 1000 + CAMPAIGN.layout_priority(wildcards.layout)


def whole_machine(wildcards):
    """All cores where jobs run on this machine: nothing else may run beside a measurement.

    Elsewhere the profile says how many (set-threads).
    """
    return (workflow.cores or 1) if workflow.local_exec else 1


def script_code(name):
    """Digest of a script and of all that it imports from the package."""
    return code_digest(Path(workflow.basedir) / "workflow" / "scripts" / name)


def run_memory(wildcards, attempt):
    """Memory of the host (MB) for a run's processes; more after a failure, as it may be that."""
    return workers_memory(len(run_of(wildcards).spec.assignments)) * attempt


def workers_memory(workers):
    return 2000 + 4000 * workers


def validation_memory(wildcards, attempt):
    """As of a run with a worker for each job that is placed, as no layout gives it more."""
    jobs = CAMPAIGN.config.plan.jobs or CAMPAIGN.workloads
    return workers_memory(len(jobs)) * attempt


def validation_minutes(wildcards):
    plan = CAMPAIGN.config.plan
    return (1 + plan.random) * plan.repeats * CAMPAIGN.longest_run_min


def claims_digests(wildcards):
    """What the files of claims hold; their times play no part."""
    found = {}
    for name in CAMPAIGN.config.claims:
        path = Path(workflow.basedir) / name
        if not path.is_file():
            raise WorkflowError(f"config key 'claims': there is no file {path}")
        found[name] = sha256_file(path)
    return found


def every_run(name):
    return [f"{RESULTS}/runs/{run.run_id}/{name}" for run in CAMPAIGN.runs]


def validation(wildcards):
    """The planner's check where it was made: the report shows it, but does not ask for it."""
    path = f"{RESULTS}/{VALIDATION}"
    made = Path(path).is_file() if MEASURES else VALIDATION in CAMPAIGN.archived.files
    return [path] if made else []


def report_figure(figure):
    """A figure that Snakemake's own report shows, in one format."""
    shown = next(name for name in ("svg", "png", "pdf", "html") if name in FORMATS)
    flagged = report(
        f"{RESULTS}/figures/{figure.name}.{shown}",
        caption=f"../report/{figure.name}.rst",
        category=figure.category,
        labels={"figure": figure.title, "question": figure.question},
    )
    return flagged


def report_figures():
    return [report_figure(figure) for figure in FIGURES]


def other_figures():
    """The remaining formats of every figure."""
    shown = {str(path) for path in report_figures()}
    paths = [
        f"{RESULTS}/figures/{figure.name}.{form}"
        for figure in FIGURES
        for form in FORMATS
    ]
    return [path for path in paths if path not in shown]


def start_campaign():
    """Everything that can stop a campaign stops it here, before anything is run."""
    try:
        check_disk(Path(RESULTS), CAMPAIGN.config.min_free_mib)
        LOCK.acquire()
        if not MEASURES:
            CAMPAIGN.archived.check()
    except ConfigError as error:
        raise WorkflowError(str(error))
    record_start(
        Path(RESULTS),
        Path(workflow.basedir),
        Request(
            CAMPAIGN.name,
            CAMPAIGN.config.source,
            CAMPAIGN.manifest()["config"],
            sha256_text(CAMPAIGN.config_json),
            TRAIN,
        ),
        [Path(name) for name in workflow.configfiles],
        sys.argv,
    )
    if not MEASURES:
        print(f"campaign {CAMPAIGN.name}: runs of {CAMPAIGN.archived.folder}")
        return
    if not workflow.local_exec:
        check_cluster()
    if workflow.local_exec and not preflight_passed(CAMPAIGN, Path(RESULTS)):
        request = CAMPAIGN.request
        script("preflight.py", "--request", request, "--campaign", RESULTS)
    board_session("--begin")
    progress.begin(Path(RESULTS), pending_runs(CAMPAIGN, Path(RESULTS)))
    print(f"campaign {CAMPAIGN.name}: {len(CAMPAIGN.runs)} runs, results in {RESULTS}")


def check_cluster():
    """Compare what the jobs ask for with what the cluster has, before any is submitted."""
    if workflow.executor_plugin.name != "slurm":
        return
    from wattslice.cluster.start import ClusterProblem, check_start

    try:
        for remark in check_start(workflow, CAMPAIGN.config.board):
            print(f"note: {remark}")
    except ClusterProblem as error:
        raise WorkflowError(f"the cluster cannot run this campaign:\n{error}")


def board_session(*flags):
    """Save the state of a board that the campaign may re-partition, or put it back."""
    managed = MEASURES and CAMPAIGN.config.board.mig == "managed"
    if managed and workflow.local_exec:
        script(
            "restore.py", "--board", CAMPAIGN.board_json, "--campaign", RESULTS, *flags
        )


def script(name, *arguments):
    """Run a script of the workflow now, outside of the DAG."""
    path = Path(workflow.basedir) / "workflow" / "scripts" / name
    if subprocess.run([sys.executable, path, *arguments], check=False).returncode:
        raise WorkflowError(f"{name} failed: see the message above")
