rule figures:
    input:
        campaign="<campaign>/campaign.json",
        cells="<campaign>/tables/cells.parquet",
        ratios="<campaign>/analysis/ratios.json",
        validation=validation,
        power=every_run("power.parquet"),
    output:
        *report_figures(),
        files=other_figures(),
    log:
        "<campaign>/logs/figures.log",
    conda:
        "../../envs/wattslice.yaml"
    params:
        formats=FORMATS,
        code=script_code("figures.py"),
    shell:
        r"""
        python ${{WATTSLICE_SCRIPTS}}/figures.py --campaign {input.campaign:q} \
            --formats {params.formats} 2>{log:q}
        """


rule report:
    input:
        campaign="<campaign>/campaign.json",
        inventory="<campaign>/inventory.json",
        tables=multiext(
            "<campaign>/tables/",
            "runs.parquet",
            "slices.parquet",
            "attribution.parquet",
            "cells.parquet",
            "summary.parquet",
        ),
        ratios="<campaign>/analysis/ratios.json",
        validation=validation,
        claims="<campaign>/analysis/claims.json",
        figures=rules.figures.output,
    output:
        report(
            f"{RESULTS}/report/index.html",
            caption="../report/page.rst",
            category="Report",
            labels={
                "figure": "The whole report",
                "question": "What was claimed, found and measured?",
            },
        ),
    log:
        "<campaign>/logs/report.log",
    conda:
        "../../envs/wattslice.yaml"
    params:
        code=script_code("report.py"),
    shell:
        r"""
        python ${{WATTSLICE_SCRIPTS}}/report.py --campaign {input.campaign:q} \
            --out {output:q} 2>{log:q}
        """
