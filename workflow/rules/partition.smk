rule partition:
    input:
        inventory=ancient("<campaign>/inventory.json"),
    output:
        "<campaign>/partitions/{layout}.json",
    log:
        "<campaign>/logs/partition/{layout}.log",
    priority: 900_000
    conda:
        "../../envs/wattslice.yaml"
    resources:
        board=1,
    params:
        request=CAMPAIGN.board_request(),
        code=script_code("partition.py"),
    shell:
        r"""
        python ${{WATTSLICE_SCRIPTS}}/partition.py --request {params.request:q} \
            --layout {wildcards.layout:q} --out {output:q} 2> {log:q}
        """


rule idle:
    input:
        partition=ancient("<campaign>/partitions/{layout}.json"),
    output:
        "<campaign>/idle/{layout}.json",
    log:
        "<campaign>/logs/idle/{layout}.log",
    priority: 800_000
    conda:
        "../../envs/wattslice.yaml"
    threads: whole_machine
    resources:
        board=1,
    params:
        settings=CAMPAIGN.idle_settings(),
        code=script_code("idle.py"),
    shell:
        r"""
        exec python ${{WATTSLICE_SCRIPTS}}/idle.py --settings {params.settings:q} \
            --code {params.code} --layout {wildcards.layout:q} --out {output:q} 2> {log:q}
        """


rule restore:
    log:
        "<campaign>/logs/restore.log",
    conda:
        "../../envs/wattslice.yaml"
    resources:
        board=1,
    params:
        campaign=RESULTS,
        request=CAMPAIGN.board_request(),
    shell:
        r"""
        python ${{WATTSLICE_SCRIPTS}}/restore.py --request {params.request:q} \
            --campaign {params.campaign:q} 2> {log:q}
        """
