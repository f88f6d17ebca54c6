"""mig-parted files as a source of layouts: good ones, bad ones, and the way back."""

import pytest

from wattslice.boards.nvidia.mig import catalogue, parted, planner

A100_80 = 0x20B210DE
H100_80 = 0x233010DE

GOOD = """
version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
  all-enabled:
    - devices: all
      mig-enabled: true
      mig-devices: {}
  all-balanced:
    - device-filter: ["0x20B210DE", "0x233010DE"]
      devices: all
      mig-enabled: true
      mig-devices:
        "1g.10gb": 2
        "2g.20gb": 1
        "3g.40gb": 1
    - device-filter: 0x20B710DE
      devices: all
      mig-enabled: true
      mig-devices: {"1g.6gb": 2, "2g.12gb": 1}
  by-number:
    - devices: [0, 2]
      mig-enabled: true
      mig-devices: {"1g.10gb+me": 1, "1g.10gb": 3, "1c.3g.40gb": 3}
    - devices: [1]
      mig-enabled: false
      mig-devices: {}
"""


@pytest.fixture(scope="module")
def good():
    return parted.parse(GOOD)


@pytest.mark.parametrize(
    ("label", "index", "pci", "layout"),
    [
        ("all-disabled", 0, A100_80, "full"),
        ("all-enabled", 3, A100_80, ""),
        ("all-balanced", 0, A100_80, "3g.40gb+2g.20gb+2x1g.10gb"),
        ("all-balanced", 5, H100_80, "3g.40gb+2g.20gb+2x1g.10gb"),
        ("all-balanced", 0, 0x20B710DE, "2g.12gb+2x1g.6gb"),
        ("by-number", 2, A100_80, "3x1c.3g.40gb+1g.10gb+me+3x1g.10gb"),
        ("by-number", 1, A100_80, "full"),
    ],
)
def test_labels_filters_and_groups_give_the_layout_of_a_board(good, label, index, pci, layout):
    assert str(good.layout(label, index, pci)) == layout


@pytest.mark.parametrize(("label", "index", "pci"), [("by-number", 7, A100_80)])
def test_a_board_that_no_group_names_is_left_alone(good, label, index, pci):
    assert good.layout(label, index, pci) is None
    assert good.layout("all-balanced", 0, 0x294110DE) is None


def test_the_layouts_of_a_file_can_be_planned(good):
    geometry = catalogue.by_pci_device_id(A100_80).geometry
    for label in ("all-balanced", "by-number"):
        planner.plan(geometry, good.layout(label, 0, A100_80))


def test_an_unknown_label_is_refused_with_the_known_ones(good):
    with pytest.raises(parted.PartedError, match="all-balanced, all-disabled"):
        good.layout("balanced", 0, A100_80)


def _config(entry):
    return f"version: v1\nmig-configs:\n  x:\n    - {entry}\n"


BAD = {
    "version: v2\nmig-configs: {a: []}": "only v1 is known",
    "mig-configs: {a: []}": "version is missing",
    "version: v1": "mig-configs is missing",
    "version: v1\nmig-configs: {}": "mapping from label",
    "version: v1\nmig-configs: {a: []}": "list of groups",
    "version: v1\nmig-configs: {a: {devices: all}}": "list of groups",
    "version: v1\nmig-configs: {a: [all]}": "a mapping is wanted",
    "version: v1\nextra: 1\nmig-configs: {a: []}": "unknown key extra",
    "": "a mapping is wanted",
    "[1": "not YAML",
    _config("{mig-enabled: true, mig-devices: {}}"): "devices is missing",
    _config("{devices: all}"): "mig-enabled is missing",
    _config("{devices: all, mig-enabled: true}"): "mig-devices is missing",
    _config("{devices: all, mig-enabled: yes please}"): "must be true or false",
    _config("{devices: all, mig-enabled: false, mig-devices: {1g.10gb: 1}}"): "must be empty",
    _config("{devices: all, mig-enabled: true, mig-devices: {1g.10gb: -1}}"): "0 or more",
    _config("{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 1.5}}"): "0 or more",
    _config("{devices: all, mig-enabled: true, mig-devices: {1g.10gb: true}}"): "0 or more",
    _config("{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 0}}"): "all counts",
    _config("{devices: all, mig-enabled: true, mig-devices: {big: 1}}"): "not a MIG profile",
    _config("{devices: all, mig-enabled: true, mig-devices: [1g.10gb]}"): "profiles to counts",
    _config("{devices: some, mig-enabled: false}"): "`all` or a list",
    _config("{devices: [0, -1], mig-enabled: false}"): "`all` or a list",
    _config("{devices: [0, 0], mig-enabled: false}"): "twice",
    _config("{devices: all, mig-enabled: false, device-filter: H100}"): "not a PCI device id",
    _config("{devices: all, mig-enabled: false, mig-device: {}}"): "unknown key mig-device",
    _config(
        "{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 1, 1g.10gb: 2}}"
    ): "given twice",
}


@pytest.mark.parametrize(("text", "why"), BAD.items())
def test_bad_files_are_refused_with_the_place_and_the_reason(text, why):
    with pytest.raises(parted.PartedError, match=why):
        parted.parse(text)


def test_groups_that_disagree_about_a_board_are_refused():
    text = (
        "version: v1\nmig-configs:\n  x:\n    - {devices: all, mig-enabled: false}\n"
        "    - {devices: [1], mig-enabled: true, mig-devices: {1g.10gb: 7}}\n"
    )
    file = parted.parse(text)
    assert str(file.layout("x", 0, A100_80)) == "full"
    with pytest.raises(parted.PartedError, match=r"disagree: full and 7x1g\.10gb"):
        file.layout("x", 1, A100_80)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(parted.PartedError, match=r"absent\.yaml: cannot be read"):
        parted.load(tmp_path / "absent.yaml")
    (tmp_path / "bad.yaml").write_text("version: v3\nmig-configs: {}\n")
    with pytest.raises(parted.PartedError, match=r"bad.yaml: version"):
        parted.load(tmp_path / "bad.yaml")


def test_an_exported_state_reads_back_as_itself_and_equal_boards_share_a_group():
    names = ["3g.40gb", "1g.10gb", "1g.10gb", "1g.10gb+me"]
    text = parted.export([(0, True, names), (1, False, []), (2, True, list(reversed(names)))])
    file = parted.parse(text)
    assert len(file.configs["current"]) == 2
    for index in (0, 2):
        assert str(file.layout("current", index, 0)) == "3g.40gb+1g.10gb+me+2x1g.10gb"
    assert str(file.layout("current", 1, 0)) == "full"
