# In place of all rules that measure: the records and raw samples of an unpacked archive, copied only
# if they are what was packed.
INVENTORY = "inventory.json"


rule from_archive:
    input:
        manifest=f"{CAMPAIGN.archived.folder}/archive.json",
        files=[f"{CAMPAIGN.archived.folder}/{name}" for name in CAMPAIGN.archived.files],
    output:
        [f"{RESULTS}/{name}" for name in CAMPAIGN.archived.files if name != INVENTORY],
        inventory="<campaign>/inventory.json",
    log:
        "<campaign>/logs/from_archive.log",
    localrule: True
    conda:
        "../../envs/wattslice.yaml"
    params:
        config=CAMPAIGN.config_json,
        expected=sha256_text(CAMPAIGN.archived.expected),
        code=script_code("from_archive.py"),
    shell:
        r"""
        python ${{WATTSLICE_SCRIPTS}}/from_archive.py --manifest {input.manifest:q} \
            --config {params.config:q} --inventory {output.inventory:q} 2>{log:q}
        """
