rule campaign:
    output:
        "<campaign>/campaign.json",
    log:
        "<campaign>/logs/campaign.log",
    localrule: True
    conda:
        "../../envs/wattslice.yaml"
    params:
        config=CAMPAIGN.config_json,
        train_code=CAMPAIGN.train_code,
        code=script_code("campaign.py"),
    shell:
        r"""
        python ${{WATTSLICE_SCRIPTS}}/campaign.py --config {params.config:q} \
            --train-code {params.train_code} --out {output:q} 2>{log:q}
        """
