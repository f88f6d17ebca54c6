rule metrics:
    input:
        record="<run>/run.json",
        steps="<run>/steps.parquet",
        power="<run>/power.parquet",
        idle="<campaign>/idle/{layout}.json",
    output:
        "<run>/metrics.json",
    log:
        "<campaign>/logs/metrics/<run_log>.log",
    conda:
        "../../envs/wattslice.yaml"
    params:
        code=script_code("metrics.py"),
    shell:
        r"""
        python ${{WATTSLICE_SCRIPTS}}/metrics.py --record {input.record:q} \
            --idle {input.idle:q} --out {output:q} 2>{log:q}
        """
