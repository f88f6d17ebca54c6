rule campaign:
    output:
        "<campaign>/campaign.json",
    log:
        "<campaign>/logs/campaign.log",
    params:
        config=CAMPAIGN.config_json,
        train_code=CAMPAIGN.train_code,
        code=script_code("campaign.py"),
    localrule: True
    conda:
        "../../envs/wattslice.yaml"
    shell:
        "python workflow/scripts/campaign.py --config {params.config:q} --out {output:q} 2> {log:q}"


rule inventory:
    output:
        "<campaign>/inventory.json",
    log:
        "<campaign>/logs/inventory.log",
    params:
        request=CAMPAIGN.board_request(),
        code=script_code("inventory.py"),
    resources:
        board=1,
    priority: 1_000_000
    conda:
        "../../envs/wattslice.yaml"
    shell:
        "python workflow/scripts/inventory.py --request {params.request:q} --out {output:q} 2> {log:q}"
