"""Learning curves."""

import math
import re
import warnings

import numpy as np
import pytest

from self_imitation.report import charts, curves


def test_curve_from_rows_sorts_by_step_and_seed():
    rows = [
        {"seed": 1.0, "step": 20.0, "return_mean": 4.0},
        {"seed": 0.0, "step": 10.0, "return_mean": 1.0},
        {"seed": 1.0, "step": 10.0, "return_mean": math.nan},
        {"seed": 0.0, "step": 20.0, "return_mean": 3.0},
    ]
    curve = curves.from_rows("a2c", "maze", rows)
    np.testing.assert_array_equal(curve.steps, [10, 20])
    np.testing.assert_array_equal(curve.returns, [[1.0, math.nan], [3.0, 4.0]])


def test_missing_returns_are_interpolated_between_a_seeds_own():
    nan = math.nan
    returns = np.array([[nan, 5.0, nan], [1.0, nan, nan], [nan, 9.0, nan], [4.0, nan, nan]])
    curve = curves.Curve("a2c", "maze", (0, 1, 2), np.array([10, 20, 40, 50]), returns)
    expected = [[nan, 5.0, nan], [1.0, 5 + 4 / 3, nan], [3.0, 9.0, nan], [4.0, 9.0, nan]]
    np.testing.assert_allclose(curves.interpolated(curve), expected)


@pytest.mark.parametrize("returns", [[[1.0]], [[math.nan, math.nan]], [[1.0, 2.0], [math.nan, 3.0]]])
def test_incomplete_curves_can_be_drawn(tmp_path, returns):
    curve = curves.Curve("a2c", "maze", (0, 1), np.arange(len(returns)), np.array(returns))
    curves.draw([curve], tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_names_are_drawn_as_they_are(tmp_path, suffix):
    """Also those that Matplotlib would take for formulas, and bytes that are not text."""
    curve = curves.Curve("cost $x_$ \\frac", "maze\udcff\x1b", (0,), np.arange(2), np.array([[1.0], [2.0]]))
    curves.draw([curve], tmp_path / f"x.{suffix}")
    if suffix == "svg":
        drawing = (tmp_path / "x.svg").read_text()
        assert "<!-- cost $x_$ \\frac (1 seed) -->" in drawing
        assert "<!-- maze\ufffd\ufffd -->" in drawing


def test_agents_have_colours_of_their_own_in_every_figure():
    agents = ["a2c", "a2c+sil", "a2c+exp", "a2c+sil+exp", "a2c+rnd", "a2c+sil+rnd"]
    colours = curves.colours(agents)
    assert len(set(colours.values())) == len(agents)
    assert curves.colours(["ppo+sil+exp"]) == {"ppo+sil+exp": colours["a2c+sil+exp"]}
    others = curves.colours(["a2c", "ppo", "a2c, run 2"])
    assert others["a2c"] == colours["a2c"]
    assert (others["ppo"], others["a2c, run 2"]) == curves.OTHER_COLOURS[:2], "taken, and not an agent"


def _figure(labels, **options):
    drawn = [curves.Curve(label, "maze", (0, 1), np.arange(2), np.ones((2, 2))) for label in labels]
    return curves.figure(drawn, **options).axes[0]


def test_no_two_of_many_curves_look_the_same():
    means = _figure([f"variant {i}" for i in range(12)]).lines[::3]  # each is followed by its two seeds
    assert len({(line.get_color(), line.get_linestyle()) for line in means}) == 12


def test_a_legend_that_would_hide_the_curves_is_below_them():
    def is_below(labels):
        axis = _figure(labels)
        return axis.get_legend().get_bbox_to_anchor().y1 < axis.bbox.y0

    assert not is_below(["a2c", "a2c+sil"])
    assert is_below([f"variant {i}" for i in range(6)])
    assert is_below(["a2c", "a2c+sil", "a2c+sil, optimiser.learning_rate=0.0001"])


def test_each_of_many_seeds_is_drawn_on_request():
    curve = curves.Curve("a2c", "maze", tuple(range(8)), np.arange(2), np.ones((2, 8)))
    assert [len(curves.figure([curve], show_seeds=shown).axes[0].lines) for shown in (False, True)] == [1, 9]


@pytest.mark.parametrize("colour", [*(own for pair in curves.COLOURS for own in pair), *curves.OTHER_COLOURS])
def test_colours_stand_out_from_the_background_in_both_themes(colour):
    light, dark = re.findall("#......", charts.theme_pair(colour))
    assert _contrast(light, "#ffffff") >= 3
    assert _contrast(dark, "#1b1f25") >= 3


def _contrast(one, other):
    """As the Web Content Accessibility Guidelines define it."""

    def luminance(colour):
        parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722] + 0.05

    lower, higher = sorted([luminance(one), luminance(other)])
    return higher / lower


def test_numbers_of_steps_are_short():
    assert [curves.short(step) for step in (80, 4096, 2_500_000)] == ["80", "4.096k", "2.5M"]


def test_huge_returns_are_drawn_without_a_warning(tmp_path):
    rows = [{"seed": seed, "step": step, "return_mean": 1.7e308} for seed in range(8) for step in (1, 2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        curves.draw([curves.from_rows("a2c", "maze", rows)], tmp_path / "curves.png")


def test_a_notebook_shows_a_figure_as_a_picture():
    curve = curves.Curve("a2c", "maze", (0,), np.array([10, 20]), np.array([[1.0], [2.0]]))
    picture = curves.figure([curve])._repr_png_()
    assert picture.startswith(b"\x89PNG")
