"""The planner against published counts, and against brute force on every board."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattslice.boards.errors import BoardNotFoundError, LayoutImpossibleError
from wattslice.boards.nvidia.mig import catalogue, planner
from wattslice.boards.nvidia.mig.geometry import Geometry, GiProfile, Placed
from wattslice.boards.nvidia.mig.ids import ProfileId
from wattslice.boards.nvidia.mig.profiles import Attribute, ProfileName
from wattslice.config.layout import Layout

SEVEN_SLICE = [n for n, b in catalogue.boards().items() if b.geometry.compute_slices == 7]
FOUR_SLICE = ["a30", "rtx-pro-6000"]


def _plain(geometry):
    return [p for p in geometry.profiles if p.attribute is Attribute.NONE]


# --- published counts --------------------------------------------------------------------------


@pytest.mark.parametrize("board", SEVEN_SLICE)
def test_seven_slice_boards_have_19_maximal_placements_of_14_layouts(board):
    geometry = catalogue.find(board).geometry
    base = geometry.base_profiles()
    assert geometry.axis == 8
    assert len(planner.maximal_sets(geometry, base)) == 19
    assert len(planner.layouts(geometry, base)) == 14
    assert len(list(planner.placed_sets(geometry, base))) == 298


@pytest.mark.parametrize("board", ["a100-sxm4-40gb", "h200-sxm-141gb"])
def test_double_memory_and_media_profiles_give_78_38_and_239_64(board):
    geometry = catalogue.find(board).geometry
    plain = _plain(geometry)
    assert len(planner.maximal_sets(geometry, plain)) == 78
    assert len(planner.layouts(geometry, plain)) == 38
    assert len(list(planner.placed_sets(geometry, plain))) == 723
    assert len(planner.maximal_sets(geometry)) == 239
    assert len(planner.layouts(geometry)) == 64
    assert len(list(planner.placed_sets(geometry))) == 2319


@pytest.mark.parametrize(("board", "axis"), [("a30", 4), ("rtx-pro-6000", 12)])
def test_four_slice_boards_have_5_maximal_placements_of_4_layouts(board, axis):
    geometry = catalogue.find(board).geometry
    base = geometry.base_profiles()
    assert geometry.axis == axis
    assert len(planner.maximal_sets(geometry, base)) == 5
    assert len(planner.layouts(geometry, base)) == 4


def test_the_a30_with_media_profiles_has_17_maximal_placements_of_8_layouts():
    geometry = catalogue.find("a30").geometry
    assert len(planner.maximal_sets(geometry)) == 17
    assert len(planner.layouts(geometry)) == 8


def test_the_19_maximal_placements_are_the_published_ones():
    published = """7g@0|3g@0 3g@4|4g@0 3g@4|3g@0 2g@4 1g@6|4g@0 2g@4 1g@6|3g@0 1g@4 1g@5 1g@6
        |4g@0 1g@4 1g@5 1g@6|2g@0 2g@2 3g@4|2g@0 2g@2 2g@4 1g@6|2g@0 2g@2 1g@4 1g@5 1g@6
        |2g@0 1g@2 1g@3 3g@4|2g@0 1g@2 1g@3 2g@4 1g@6|2g@0 1g@2 1g@3 1g@4 1g@5 1g@6
        |1g@0 1g@1 2g@2 3g@4|1g@0 1g@1 2g@2 2g@4 1g@6|1g@0 1g@1 2g@2 1g@4 1g@5 1g@6
        |1g@0 1g@1 1g@2 1g@3 3g@4|1g@0 1g@1 1g@2 1g@3 2g@4 1g@6
        |1g@0 1g@1 1g@2 1g@3 1g@4 1g@5 1g@6"""
    geometry = catalogue.find("a100-sxm4-80gb").geometry
    computed = {
        frozenset(f"{geometry.portable_name(p.profile)}@{p.start}" for p in placed)
        for placed in planner.maximal_sets(geometry, geometry.base_profiles())
    }
    assert computed == {frozenset(line.split()) for line in published.split("|")}


@pytest.mark.parametrize("board", ["a100-sxm4-40gb", "a30", "rtx-pro-6000"])
def test_what_is_enumerated_breaks_no_rule_and_maximal_sets_take_no_more(board):
    geometry = catalogue.find(board).geometry
    for placed in planner.placed_sets(geometry):
        assert planner.violation(geometry, placed) is None
    everything = [Placed(start, p) for p in geometry.profiles for start in p.starts]
    for placed in planner.maximal_sets(geometry):
        for new in everything:
            assert planner.violation(geometry, (*placed, new)) is not None


# --- layouts that cannot exist -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "reason", "nearest"),
    [
        ("4g+2g+2g", "8 compute slices, the board has 7", "4g+2g+1g"),
        ("4g+2g+1g+1g+1g", "9 compute slices, the board has 7", "4g+2g+1g"),
        ("2x4g", "at most 1 x 4g", "4g+3g"),
        ("2x3g+1g", "9 memory slices, the board has 8", "2x3g"),
        ("8x1g", "at most 7", "7x1g"),
        ("7g+1g", "8 compute slices", "7g"),
        ("2x1g+me", "at most 1", "1g+me+1g"),
        ("3g.20gb", "has no profile 3g.20gb; it has 3g.40gb", "3g"),
        ("5g", "has no profile 5g", "4g"),
        ("2c", "is not a MIG profile", ""),
    ],
)
def test_layouts_of_published_tables_that_cannot_exist_are_refused_with_a_reason(
    layout, reason, nearest
):
    geometry = catalogue.find("a100-sxm4-80gb").geometry
    with pytest.raises(LayoutImpossibleError) as caught:
        planner.plan(geometry, Layout.parse(layout))
    assert reason in caught.value.reason
    if nearest:
        assert nearest in caught.value.nearest


def test_a_later_board_whose_counts_fit_but_whose_places_do_not_is_refused_with_the_places():
    # On all known boards the counts decide; a board of a later driver may have other places.
    wide = GiProfile(ProfileName(3, 30), ProfileId(1), 3, 3, (0, 5), 2)
    middle = GiProfile(ProfileName(2, 20), ProfileId(2), 2, 2, (2,), 1)
    whole = GiProfile(ProfileName(8, 80), ProfileId(0), 8, 8, (0,), 1)
    geometry = Geometry("later", (wide, middle, whole))
    planner.plan(geometry, Layout.parse("3g+2g"))
    with pytest.raises(LayoutImpossibleError) as caught:
        planner.plan(geometry, Layout.parse("2x3g+2g"))
    assert "3g.30gb starts at 0, 5 and takes 3; 2g.20gb starts at 2" in caught.value.reason
    assert set(caught.value.nearest) == {"2x3g", "3g+2g", "3g"}


def test_media_engines_are_given_once():
    rtx = catalogue.find("rtx-pro-6000").geometry
    for layout in ("1g+me.all+1g", "1g+me.all+2g+gfx"):
        with pytest.raises(LayoutImpossibleError, match="every media engine"):
            planner.plan(rtx, Layout.parse(layout))
    planner.plan(rtx, Layout.parse("1g+me.all+1g-me+2g-me"))
    with pytest.raises(LayoutImpossibleError, match="one \\+me instance"):
        planner.plan(catalogue.find("a30").geometry, Layout.parse("1g+me+2g+me"))


# --- names -------------------------------------------------------------------------------------


def test_mig_parted_31_a_name_that_is_a_gigabyte_off_means_the_same_slice():
    geometry = catalogue.find("a100-sxm4-80gb").geometry
    plan = planner.plan(geometry, Layout.parse("3g.39gb"))
    assert str(plan.instances[0].profile) == "3g.40gb"
    assert plan.aliases == ("3g.39gb is 3g.40gb on this board",)


def test_one_name_means_different_slices_on_different_boards():
    for board, size in (("a100-sxm4-40gb", 2), ("a100-sxm4-80gb", 1)):
        geometry = catalogue.find(board).geometry
        plan = planner.plan(geometry, Layout.parse("1g.10gb"))
        assert plan.instances[0].profile.memory_slices == size


def test_a_portable_name_is_the_plain_profile_not_the_double_memory_one():
    geometry = catalogue.find("h200-sxm-141gb").geometry
    assert str(planner.resolve_profile(geometry, "1g")[0]) == "1g.18gb"
    assert str(planner.resolve_profile(geometry, "1g+me")[0]) == "1g.18gb+me"


def test_parts_of_an_instance_share_one_where_they_fit():
    geometry = catalogue.find("h200-sxm-141gb").geometry
    plan = planner.plan(geometry, Layout.parse("2c.3g.71gb+1c.3g.71gb+1c.3g.71gb"))
    assert sorted(i.ci_slices for i in plan.instances) == [(1,), (2, 1)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A100_SXM4_80GB", "a100-sxm4-80gb"),
        ("nvidia a30", "a30"),
        ("h200-nvl", "h200-nvl-141gb"),
    ],
)
def test_board_names_are_forgiving(text, name):
    assert catalogue.find(text).name == name


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a100-sxm4-80", "did you mean a100-sxm4-80gb"),
        ("a100", "did you mean a100-sxm4-40gb"),
        ("rtx-pro-5000-48gb", "no placements are published"),
        ("", "known: a100-sxm4-40gb"),
    ],
)
def test_unknown_boards_are_refused_with_what_was_meant(text, hint):
    with pytest.raises(BoardNotFoundError, match=hint):
        catalogue.find(text)


# --- order and fragmentation -------------------------------------------------------------------


def test_t13_instances_are_created_largest_first_at_planned_places():
    geometry = catalogue.find("a100-sxm4-40gb").geometry
    plan = planner.plan(geometry, Layout.parse("1g+1g+2g+3g"))
    order = [i.profile.memory_slices for i in plan.creation_order()]
    assert order == sorted(order, reverse=True)
    assert planner.violation(geometry, [i.placed for i in plan.instances]) is None


def test_a_lone_3g_leaves_room_for_a_4g():
    geometry = catalogue.find("a100-sxm4-80gb").geometry
    assert planner.plan(geometry, Layout.parse("3g")).instances[0].placed.start == 4


def test_mig_parted_pr_3_present_instances_stay_where_they_are():
    geometry = catalogue.find("a100-sxm4-80gb").geometry
    by_name = {str(p): p for p in geometry.profiles}
    present = [Placed(2, by_name["2g.20gb"]), Placed(0, by_name["1g.10gb"])]
    plan = planner.plan(geometry, Layout.parse("3g+2g+1g+1g"), present)
    assert {(i.placed.start, i.profile) for i in plan.instances} >= {
        (p.start, p.profile) for p in present
    }


def test_dra_933_fragmentation_says_which_instance_is_in_the_way():
    geometry = catalogue.find("a100-sxm4-80gb").geometry
    by_name = {str(p): p for p in geometry.profiles}
    present = [Placed(s, by_name["1g.10gb"]) for s in (0, 3, 4)]
    found = planner.what_to_remove(geometry, present, by_name["3g.40gb"])
    assert [p.start for p in found] == [4]
    assert planner.what_to_remove(geometry, [], by_name["7g.80gb"]) == ()
    media = [Placed(0, by_name["1g.10gb+me"])]
    assert planner.what_to_remove(geometry, media, by_name["1g.10gb+me"]) == tuple(media)


# --- brute force -------------------------------------------------------------------------------


def _possible(geometry, profiles):
    """Whether the profiles have places, by trying all, with the rules written out anew."""
    counts = Counter(p.attribute for p in profiles)
    if counts[Attribute.MEDIA] > 1:
        return False
    if counts[Attribute.MEDIA_ALL] and len(profiles) - counts[Attribute.NO_MEDIA] > 1:
        return False
    if sum(p.compute_slices for p in profiles) > max(p.compute_slices for p in geometry.profiles):
        return False
    if any(n > p.max_count for p, n in Counter(profiles).items()):
        return False
    if sum(p.memory_slices for p in profiles) > geometry.axis:
        return False
    for starts in itertools.product(*(p.starts for p in profiles)):
        used = [
            cell
            for start, p in zip(starts, profiles, strict=True)
            for cell in range(start, start + p.memory_slices)
        ]
        if len(used) == len(set(used)):
            return True
    return False


@st.composite
def _wishes(draw):
    board = draw(st.sampled_from(sorted(catalogue.boards())))
    geometry = catalogue.find(board).geometry
    chosen = draw(st.lists(st.sampled_from(geometry.profiles), min_size=1, max_size=5))
    return geometry, chosen


@settings(max_examples=200, deadline=None)
@given(_wishes())
def test_plans_are_valid_and_refusals_are_right_on_every_board(wish):
    geometry, profiles = wish
    layout = Layout.parse(",".join(map(str, profiles)))
    try:
        plan = planner.plan(geometry, layout)
    except LayoutImpossibleError as error:
        assert not _possible(geometry, profiles)
        assert error.reason
        for nearest in error.nearest:
            planner.plan(geometry, Layout.parse(nearest))  # what is offered must be possible
        return
    assert _possible(geometry, profiles)
    assert Counter(i.profile for i in plan.instances) == Counter(profiles)
    assert planner.violation(geometry, [i.placed for i in plan.instances]) is None
    assert sorted(s.index for i in plan.instances for s in i.slices) == list(range(len(profiles)))


@pytest.mark.parametrize("board", ["a100-sxm4-80gb", "a30"])
def test_every_multiset_of_base_profiles_is_judged_as_brute_force_does(board):
    geometry = catalogue.find(board).geometry
    base = geometry.base_profiles()
    for count in range(1, 5):
        for profiles in itertools.combinations_with_replacement(base, count):
            try:
                planner.plan(geometry, Layout.parse(",".join(map(str, profiles))))
                judged = True
            except LayoutImpossibleError:
                judged = False
            assert judged == _possible(geometry, profiles), profiles


@settings(max_examples=100, deadline=None)
@given(_wishes(), st.randoms(use_true_random=False))
def test_replanning_keeps_every_instance_of_a_layout_that_is_there(wish, random):
    geometry, _ = wish
    sets = [s for s in planner.placed_sets(geometry, geometry.base_profiles()) if s]
    placed = random.choice(sets)
    layout = Layout.parse(",".join(str(p.profile) for p in placed))
    plan = planner.plan(geometry, layout, placed)
    assert {(p.start, p.profile) for p in placed} == {
        (i.placed.start, i.profile) for i in plan.instances
    }
