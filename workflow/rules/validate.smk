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
    params:
        train_code=CAMPAIGN.train_code,
        code=script_code("validate.py"),
    shell:
        r"""
        exec python ${{WATTSLICE_SCRIPTS}}/validate.py --campaign {input.campaign:q} \
            --train-code {params.train_code} --out {output:q} 2>{log:q}
        """


# Mixes against sequence, time slicing and MPS; `snakemake mix_gains` writes it.
rule mix_gains:
    input:
        campaign="<campaign>/campaign.json",
        tables=multiext("<campaign>/tables/", "runs.parquet", "slices.parquet"),
    output:
        "<campaign>/analysis/mix-gains.json",
    log:
        "<campaign>/logs/mix_gains.log",
    conda:
        "../../envs/wattslice.yaml"
    params:
        code=script_code("mix_gains.py"),
    shell:
        r"""
        python ${{WATTSLICE_SCRIPTS}}/mix_gains.py --campaign {input.campaign:q} \
            --out {output:q} 2>{log:q}
        """
