# One run: lease the board, make the layout hold, train behind a barrier with the meter on, record.
# `exec` makes the launcher a child of Snakemake itself, so that it ends when Snakemake is killed.
rule train:
    input:
        partition="<campaign>/partitions/{layout}.json",
    output:
        record="<run>/run.json",
        steps="<run>/steps.parquet",
        power="<run>/power.parquet",
    log:
        "<campaign>/logs/train/<run_log>.log",
    priority: run_priority
    conda:
        "../../envs/wattslice.yaml"
    threads: whole_machine
    resources:
        board=1,
    params:
        campaign=CAMPAIGN.name,
        run=run_id,
        spec=run_spec,
        code=CAMPAIGN.train_code,
    shell:
        r"""
        exec python -m wattslice.train --spec {params.spec:q} --code {params.code} \
            --run {params.run:q} --campaign {params.campaign:q} --record {output.record:q} \
            2>{log:q}
        """
