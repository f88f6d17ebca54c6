"""wattslice: which model, in which precision, on which slice, trains how fast on how many joules?"""

from snakemake.utils import min_version

min_version("9.25")


configfile: f"{workflow.basedir}/config/config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/campaign.smk"


if MEASURES:

    include: "workflow/rules/inventory.smk"
    include: "workflow/rules/partition.smk"
    include: "workflow/rules/train.smk"
    include: "workflow/rules/validate.smk"

else:

    include: "workflow/rules/archive.smk"


include: "workflow/rules/metrics.smk"
include: "workflow/rules/aggregate.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/provenance.smk"


rule all:
    default_target: True
    input:
        "<campaign>/report/index.html",
        "<campaign>/manifest.json",
        # Named here too: a file between others that is deleted is not missed by Snakemake.
        every_run("run.json"),


onstart:
    start_campaign()


onsuccess:
    board_session()
    print(f"report: {RESULTS}/report/index.html")


onerror:
    board_session()
