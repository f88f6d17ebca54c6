# No input of `train` may be ancient(): Snakemake 9.27 skips the params check of every job below one
# that is to be run, and then does not run it either when the file between them is ancient. So what
# makes a partition stale (board, code) is a part of what makes its runs stale.
rule partition:
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
        board=CAMPAIGN.board_json,
        code=CAMPAIGN.train_code,
    shell:
        r"""
        python ${{WATTSLICE_SCRIPTS}}/partition.py --board {params.board:q} \
            --layout {wildcards.layout:q} --out {output:q} 2>{log:q}
        """


rule idle:
    input:
        partition="<campaign>/partitions/{layout}.json",
    output:
        "<campaign>/idle/{layout}.json",
    log:
        "<campaign>/logs/idle/{layout}.log",
    priority: idle_priority
    conda:
        "../../envs/wattslice.yaml"
    threads: whole_machine
    resources:
        board=1,
    params:
        settings=CAMPAIGN.idle_settings,
        code=script_code("idle.py"),
    shell:
        r"""
        exec python ${{WATTSLICE_SCRIPTS}}/idle.py --settings {params.settings:q} \
            --code {params.code} --layout {wildcards.layout:q} --out {output:q} 2>{log:q}
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
        board=CAMPAIGN.board_json,
    shell:
        r"""
        python ${{WATTSLICE_SCRIPTS}}/restore.py --board {params.board:q} \
            --campaign {params.campaign:q} 2>{log:q}
        """
