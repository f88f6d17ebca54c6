# One run: lease the board, make the layout hold, train behind a barrier with the meter on, record.
# `exec` makes the launcher a child of Snakemake itself, so that it ends when Snakemake is killed.
# Every start is noted beside the log, which outlives failed, killed and requeued jobs (outputs do
# not), and its number among the starts with the same spec and code is the record's `attempt`.
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
        mem_mb=run_memory,
        runtime=CAMPAIGN.longest_run_min,
    params:
        campaign=CAMPAIGN.name,
        run=run_id,
        spec=run_spec,
        code=CAMPAIGN.train_code,
    shell:
        r"""
        starts={log:q}.starts
        version=$(printf '%s' {params.spec:q} {params.code} | sha256sum | cut -c -64)
        echo "$version $(date -u +%FT%TZ) $(hostname) ${{SLURM_JOB_ID:-}}" >>"$starts"
        WATTSLICE_ATTEMPT=$(grep -c "^$version " "$starts")
        export WATTSLICE_ATTEMPT
        exec python -m wattslice.train --spec {params.spec:q} --code {params.code} \
            --run {params.run:q} --campaign {params.campaign:q} --record {output.record:q} \
            2>{log:q}
        """
