# `snakemake validate`: the planner against the board. One job runs all that it chose, because what
# it chooses is known only after the campaign has been measured, and there are no checkpoints.
rule validate:
    input:
        campaign="<campaign>/campaign.json",
        tables=multiext("<campaign>/tables/", "runs.parquet", "slices.parquet"),
    output:
        "<campaign>/analysis/validation.json",
    log:
        "<campaign>/logs/validate.log",
    conda:
        "../../envs/wattslice.yaml"
    threads: whole_machine
    resources:
        board=1,
        mem_mb=validation_memory,
        runtime=validation_minutes,
    params:
        train_code=CAMPAIGN.train_code,
        code=script_code("validate.py"),
    shell:
        r"""
        exec python ${{WATTSLICE_SCRIPTS}}/validate.py --campaign {input.campaign:q} \
            --train-code {params.train_code} --out {output:q} 2>{log:q}
        """
