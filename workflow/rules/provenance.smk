# What all results rest on, after everything else: the crate with a copy of the code, and last the
# digests of every file.
rule crate:
    input:
        campaign="<campaign>/campaign.json",
        inventory="<campaign>/inventory.json",
        records=every_run("run.json"),
        metrics=every_run("metrics.json"),
        figures=rules.figures.output,
        report="<campaign>/report/index.html",
    output:
        crate="<campaign>/ro-crate-metadata.json",
        code=directory("<campaign>/code"),
    log:
        "<campaign>/logs/crate.log",
    localrule: True
    conda:
        "../../envs/wattslice.yaml"
    params:
        snapshot=CODE_SNAPSHOT,
        code=script_code("crate.py"),
    shell:
        r"""
        python ${{WATTSLICE_SCRIPTS}}/crate.py --out {output.crate:q} 2>{log:q}
        """


rule manifest:
    input:
        crate="<campaign>/ro-crate-metadata.json",
        report="<campaign>/report/index.html",
    output:
        "<campaign>/manifest.json",
    log:
        "<campaign>/logs/manifest.log",
    localrule: True
    conda:
        "../../envs/wattslice.yaml"
    params:
        code=script_code("manifest.py"),
    shell:
        r"""
        python ${{WATTSLICE_SCRIPTS}}/manifest.py --out {output:q} 2>{log:q}
        """
