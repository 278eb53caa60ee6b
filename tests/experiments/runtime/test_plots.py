"""Figures: they contain the data, their bytes are reproducible, and errors name the argument."""

from typing import Any

import numpy as np
import pytest
from PIL import Image

from experiments.runtime import plots

pytestmark = pytest.mark.usefixtures("looks")


def curves():
    x = np.arange(1, 30)
    return {"cell": (x, 1 / x), "LSTM": (x, 1 / np.sqrt(x), 0.9 / np.sqrt(x), 1.1 / np.sqrt(x))}


def curve_figure(**others):
    return plots.curve_figure(curves(), title="Error", xlabel="length", ylabel="error", **others)


def test_curves_are_drawn_with_their_labels_bands_and_marks():
    figure = curve_figure(xlog=True, ylim=(0, 2), marks={"trained to": 10})
    axes: Any = figure.axes[0]
    first, second, mark = axes.lines
    np.testing.assert_allclose(first.get_ydata(), 1 / np.arange(1, 30))
    assert first.get_color() != second.get_color()
    assert first.get_linestyle() != second.get_linestyle()
    assert list(mark.get_xdata()) == [10, 10]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["cell", "LSTM"]
    assert len(axes.collections) == 1
    assert (axes.get_xscale(), axes.get_ylim(), axes.get_xlabel()) == ("log", (0, 2), "length")


@pytest.mark.parametrize("places", [12, 13])
def test_few_places_have_their_markers_and_plain_numbers(places):
    x = 20.0 * np.arange(1, places + 1)
    figure = plots.curve_figure({"cell": (x, 1 / x)}, title="", xlabel="", ylabel="", xlog=True)
    (axes,) = figure.axes
    few = places == 12
    assert [line.get_marker() for line in axes.lines] == ["o" if few else "None"]
    assert (len(axes.get_xticks()) == places) is few


def test_many_curves_differ_and_their_legend_stands_beside_the_plot():
    x = np.arange(3)
    many = {f"model {number}": (x, number + x) for number in range(12)}
    figure = plots.curve_figure(many, title="Accuracy", xlabel="k", ylabel="accuracy", beside=True)
    axes: Any = figure.axes[0]
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 12
    assert axes.get_legend() is None
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [*many]
    assert figure.get_suptitle() == "Accuracy"


@pytest.mark.parametrize("ylog", [False, True])
def test_a_mark_is_named_in_the_widest_gap_between_curves(ylog):
    x, (low, high) = np.arange(1, 30), (0.01, 1.0)

    def named_at(*ys):
        curves = {f"cell {i}": (x, np.broadcast_to(y, x.shape)) for i, y in enumerate(ys)}
        marks = {"trained to": 3}
        figure = plots.curve_figure(
            curves, title="", xlabel="", ylabel="", ylog=ylog, ylim=(low, high), marks=marks
        )
        (text,) = figure.axes[0].texts
        place, height = text.xy  # pyrefly: ignore[missing-attribute]
        assert (text.get_verticalalignment(), place) == ("center", 3)
        return height

    def at(y):
        return np.log(y / low) / np.log(high / low) if ylog else (y - low) / (high - low)

    assert named_at(0.9) == pytest.approx(at(0.9) / 2)
    assert named_at(0.02) == pytest.approx((1 + at(0.02)) / 2)
    assert named_at(0.015, 0.95) == named_at(0.95, 0.015) == pytest.approx((at(0.015) + at(0.95)) / 2)
    assert named_at(0.9, 7.0) == named_at(0.9) == named_at(0.9, np.where(x < 9, np.nan, 0.5))  # not there
    crossing = np.where(x <= 3, 0.011, 0.99)  # from the bottom to the top, next to the mark
    assert named_at(crossing, 0.5) in (pytest.approx(at(0.011) / 2), pytest.approx((1 + at(0.99)) / 2))


def test_panels_share_one_scale_and_have_row_zero_at_the_bottom():
    panels = {"read": np.eye(3), "write": 4 * np.eye(3, 5)}
    figure = plots.heatmap_figure(
        panels, title="Addresses", xlabel="time", ylabel="place", colour_label="weight"
    )
    images = [axes.images[0] for axes in figure.axes if axes.images]
    assert [image.get_clim() for image in images] == [(0, 4), (0, 4)]
    assert all(image.origin == "lower" for image in images)
    for axes in figure.axes[:2]:
        assert not any(line.get_visible() for line in (*axes.get_xgridlines(), *axes.get_ygridlines()))
        assert {*np.mod([*axes.get_xticks(), *axes.get_yticks()], 1)} == {0}
    np.testing.assert_array_equal(images[1].get_array(), 4 * np.eye(3, 5))
    assert [axes.get_title() for axes in figure.axes[:2]] == ["read", "write"]


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_same_figure_is_the_same_bytes(tmp_path, suffix):
    first, second = (plots.save(curve_figure(), tmp_path / name / f"a{suffix}") for name in ("x", "y"))
    assert first.read_bytes() == second.read_bytes()
    assert b"<dc:date>" not in first.read_bytes()


def test_the_picture_is_legible_in_size_and_not_blank(tmp_path):
    with Image.open(plots.save(curve_figure(), tmp_path / "a.png")) as image:
        assert image.width >= 700
        assert not image.info.keys() & {"Software", "Creation Time"}
        assert len(np.unique(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0)) > 10


def test_the_first_colours_differ_in_lightness_for_those_who_see_no_hue():
    """Compares the relative luminance (WCAG) of neighbouring colours."""

    def luminance(colour):
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    values = [luminance(colour) for colour in plots.COLOURS]
    assert abs(values[0] - values[1]) > 0.05
    assert len(set(plots.COLOURS)) == 8


def test_mistakes_are_named(tmp_path):
    with pytest.raises(
        ValueError, match=r"curve 'a': got shapes \(2,\), \(3,\), expected vectors of equal length"
    ):
        plots.curve_figure({"a": ([1, 2], [1, 2, 3])}, title="", xlabel="", ylabel="")
    with pytest.raises(ValueError, match=r"panel 'b': got shape \(3,\)"):
        plots.heatmap_figure({"b": [1, 2, 3]}, title="", xlabel="", ylabel="")
    with pytest.raises(ValueError, match="panels: got none"):
        plots.heatmap_figure({}, title="", xlabel="", ylabel="")
    with pytest.raises(ValueError, match=r"path: got 'a.pdf', expected a name that ends in .png or .svg"):
        plots.save(curve_figure(), tmp_path / "a.pdf")
