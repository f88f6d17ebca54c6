rule partition:
    input:
        inventory=ancient("<campaign>/inventory.json"),
    output:
        "<campaign>/partitions/{layout}.json",
    log:
        "<campaign>/logs/partition/{layout}.log",
    params:
        request=CAMPAIGN.board_request(),
        code=script_code("partition.py"),
    resources:
        board=1,
    priority: 900_000
    conda:
        "../../envs/wattslice.yaml"
    shell:
        "python workflow/scripts/partition.py --request {params.request:q} --layout {wildcards.layout:q} --out {output:q} 2> {log:q}"


rule idle:
    input:
        partition=ancient("<campaign>/partitions/{layout}.json"),
    output:
        "<campaign>/idle/{layout}.json",
    log:
        "<campaign>/logs/idle/{layout}.log",
    params:
        settings=CAMPAIGN.idle_settings(),
        code=script_code("idle.py"),
    threads: whole_machine
    resources:
        board=1,
    priority: 800_000
    conda:
        "../../envs/wattslice.yaml"
    shell:
        "exec python workflow/scripts/idle.py --settings {params.settings:q} --code {params.code} --layout {wildcards.layout:q} --out {output:q} 2> {log:q}"


rule restore:
    log:
        "<campaign>/logs/restore.log",
    params:
        campaign=RESULTS,
        request=CAMPAIGN.board_request(),
    resources:
        board=1,
    conda:
        "../../envs/wattslice.yaml"
    shell:
        "python workflow/scripts/restore.py --request {params.request:q} --campaign {params.campaign:q} 2> {log:q}"
