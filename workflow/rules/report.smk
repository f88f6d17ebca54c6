rule figures:
    input:
        campaign="<campaign>/campaign.json",
        cells="<campaign>/tables/cells.parquet",
        ratios="<campaign>/analysis/ratios.json",
    output:
        figures=[
            report(
                f"<campaign>/figures/{figure.name}.svg",
                caption="../report/figure.rst",
                category=figure.category,
                labels={"figure": figure.title, "format": "svg"},
            )
            for figure in FIGURES
        ],
        files=expand("<campaign>/figures/{figure}.{format}", figure=[f.name for f in FIGURES], format=FORMATS),
    log:
        "<campaign>/logs/figures.log",
    params:
        formats=FORMATS,
        code=script_code("figures.py"),
    conda:
        "../../envs/wattslice.yaml"
    shell:
        "python workflow/scripts/figures.py --campaign {input.campaign:q} --formats {params.formats} 2> {log:q}"
