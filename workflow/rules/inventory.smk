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
            --out {output:q} 2>{log:q}
        """


rule inventory:
    output:
        "<campaign>/inventory.json",
    log:
        "<campaign>/logs/inventory.log",
    priority: 1_000_000
    conda:
        "../../envs/wattslice.yaml"
    resources:
        board=1,
    params:
        board=CAMPAIGN.board_json,
        code=script_code("inventory.py"),
    shell:
        r"""
        python ${{WATTSLICE_SCRIPTS}}/inventory.py --board {params.board:q} --out {output:q} \
            2>{log:q}
        """
