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
