"""One grammar for all spellings of MIG profile names."""

import pytest

from wattslice.boards.nvidia.mig import catalogue
from wattslice.boards.nvidia.mig.profiles import (
    Attribute,
    ProfileName,
    ProfileNameError,
    name_from_size,
)

SPELLINGS = {
    "1g": (1, None, "", None),
    "1g.10gb": (1, 10, "", None),
    "MIG 1g.10gb": (1, 10, "", None),
    "1g.18gb+me": (1, 18, "+me", None),
    "1g.5gb.me": (1, 5, "+me", None),
    "1g+me": (1, None, "+me", None),
    "1g.24gb+gfx": (1, 24, "+gfx", None),
    "1g.24gb-me": (1, 24, "-me", None),
    "1g.24gb+me.all": (1, 24, "+me.all", None),
    "1g.24gb.me.all": (1, 24, "+me.all", None),
    "1c.3g.40gb": (3, 40, "", 1),
    "1c.3g": (3, None, "", 1),
    "3c.3g.71gb": (3, 71, "", None),
    "7g.141gb": (7, 141, "", None),
}


@pytest.mark.parametrize(("text", "parts"), SPELLINGS.items())
def test_t18_all_spellings_of_a_profile_are_understood(text, parts):
    name = ProfileName.parse(text)
    assert (name.slices, name.memory_gb, name.attribute.value, name.ci_slices) == parts
    assert ProfileName.parse(str(name)) == name
    assert ProfileName.parse(name.label) == name


@pytest.mark.parametrize(
    "text", ["", "g", "0g", "1", "1gb", "1g.gb", "1g.10", "1g+you", "4c.3g.40gb", "1g.10gb+me-me"]
)
def test_what_is_no_profile_is_refused_with_examples(text):
    with pytest.raises(ProfileNameError, match=r"valid are|does not fit"):
        ProfileName.parse(text)


@pytest.mark.parametrize("board", catalogue.boards())
def test_every_name_of_the_catalogue_reads_back_as_itself(board):
    for profile in catalogue.find(board).geometry.profiles:
        assert ProfileName.parse(str(profile)) == profile.name


def test_1g_35gb_and_2g_35gb_share_memory_but_are_two_profiles():
    h200 = catalogue.find("h200-sxm-141gb").geometry
    one, two = (next(p for p in h200.profiles if str(p) == n) for n in ("1g.35gb", "2g.35gb"))
    assert one.memory_mib == two.memory_mib
    assert (one.profile_id, one.sm_count) != (two.profile_id, two.sm_count)


@pytest.mark.parametrize(
    ("device_name", "profile"),
    [
        ("NVIDIA H200 MIG 1c.3g.71gb", "1c.3g.71gb"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb+me", "1g.10gb+me"),
        ("NVIDIA A100-SXM4-80GB", "None"),
        ("NVIDIA H100 MIG later-kind", "None"),
    ],
)
def test_t17_the_profile_is_in_the_name_of_the_mig_device(device_name, profile):
    assert str(ProfileName.from_device_name(device_name)) == profile


@pytest.mark.parametrize("board", ["a100-sxm4-40gb", "h100-sxm5-80gb", "h200-sxm-141gb", "a30"])
def test_computed_names_are_the_drivers_names_where_the_memory_is_known(board):
    totals = {"a100-sxm4-40gb": 40960, "h100-sxm5-80gb": 81559, "h200-sxm-141gb": 143771}
    totals["a30"] = 24576
    for profile in catalogue.find(board).geometry.profiles:
        computed = name_from_size(
            profile.compute_slices, profile.memory_mib, totals[board], profile.attribute
        )
        # Computed names may be a gigabyte off, which is why they are no identity.
        assert abs(computed.memory_gb - profile.name.memory_gb) <= 1, profile


def test_attribute_names_are_those_of_nvidia_smi():
    assert [a.value for a in Attribute] == ["", "+me", "+me.all", "-me", "+gfx"]
