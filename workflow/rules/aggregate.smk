rule aggregate:
    input:
        campaign="<campaign>/campaign.json",
        records=every_run("run.json"),
        metrics=every_run("metrics.json"),
    output:
        multiext("<campaign>/tables/runs", ".parquet", ".csv"),
        multiext("<campaign>/tables/slices", ".parquet", ".csv"),
        multiext("<campaign>/tables/attribution", ".parquet", ".csv"),
        multiext("<campaign>/tables/cells", ".parquet", ".csv"),
        multiext("<campaign>/tables/summary", ".parquet", ".csv"),
    log:
        "<campaign>/logs/aggregate.log",
    conda:
        "../../envs/wattslice.yaml"
    params:
        code=script_code("aggregate.py"),
    shell:
        r"""
        python ${{WATTSLICE_SCRIPTS}}/aggregate.py --campaign {input.campaign:q} \
            2>{log:q}
        """


rule analyse:
    input:
        campaign="<campaign>/campaign.json",
        cells="<campaign>/tables/cells.parquet",
    output:
        "<campaign>/analysis/ratios.json",
    log:
        "<campaign>/logs/analyse.log",
    conda:
        "../../envs/wattslice.yaml"
    params:
        code=script_code("analyse.py"),
    shell:
        r"""
        python ${{WATTSLICE_SCRIPTS}}/analyse.py --campaign {input.campaign:q} \
            --out {output:q} 2>{log:q}
        """


rule claims:
    input:
        campaign="<campaign>/campaign.json",
        cells="<campaign>/tables/cells.parquet",
        slices="<campaign>/tables/slices.parquet",
    output:
        "<campaign>/analysis/claims.json",
    log:
        "<campaign>/logs/claims.log",
    conda:
        "../../envs/wattslice.yaml"
    params:
        files=list(CAMPAIGN.config.claims),
        content=claims_digests,
        code=script_code("claims.py"),
    shell:
        r"""
        python ${{WATTSLICE_SCRIPTS}}/claims.py --campaign {input.campaign:q} \
            --claims {params.files:q} --out {output:q} 2>{log:q}
        """
