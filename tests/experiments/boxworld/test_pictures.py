"""Pictures: the numbers in them are those given, and no text lies on another."""

import itertools
import re
from typing import Any

import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from experiments import runtime
from experiments.boxworld import episodes, pictures
from simplicial import analysis, boxworld
from tests.experiments.boxworld.player import small_episode

pytestmark = pytest.mark.usefixtures("compiled_quickly", "looks")

TYPES = np.asarray(boxworld.puzzles(boxworld.BRIDGE))
TIMES = [0, 3, 7]


@pytest.fixture(scope="module")
def episode():
    """An episode of eight steps."""
    return small_episode()


def counts(seed, types=TYPES, number=200):
    """Returns random endings of `number` boards per type."""
    draws = np.random.default_rng(seed).multinomial(number, [0.6, 0.3, 0.1], size=len(types))
    solved, died, capped = draws.T
    return analysis.Evaluation(
        puzzles=jnp.asarray(types), episodes=solved + died + capped, solved=solved, died=died, capped=capped,
        steps=20 * solved, solved_steps=10 * solved,
    )  # fmt: skip


def overlapping(figure):
    """Pairs of texts outside of the frames that lie on each other, or reach out of the figure."""
    canvas = FigureCanvasAgg(figure)
    with matplotlib.rc_context(runtime.plots.STYLE):
        canvas.draw()
    renderer, found = canvas.get_renderer(), [*figure.texts]
    for axes in figure.axes:
        found += [axes.title, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            shown = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            found += [tick.label1 for tick in shown]
    boxes = [
        (text.get_text(), text.get_window_extent(renderer))
        for text in found
        if text.get_text().strip() and text.get_visible()
    ]
    room = figure.bbox
    outside = [
        name for name, box in boxes
        if box.x0 < -1 or box.y0 < -1 or box.x1 > room.width + 1 or box.y1 > room.height + 1
    ]  # fmt: skip
    crossing = [
        (one, other) for (one, box), (other, second) in itertools.combinations(boxes, 2)
        if box.shrunk(0.9, 0.9).overlaps(second.shrunk(0.9, 0.9))
    ]  # fmt: skip
    return outside, crossing


def drawn(axes):
    return np.asarray(axes.get_images()[0].get_array())


def test_the_check_of_texts_would_see_one():
    figure = runtime.plots.curve_figure(
        {"a": ([0, 1], [0, 1])}, title="a very long title " * 9, xlabel="x", ylabel="y"
    )
    assert overlapping(figure)[0]
    figure = runtime.plots.curve_figure({"a": ([0, 1], [0, 1])}, title="t", xlabel="x", ylabel="y")
    assert overlapping(figure) == ([], [])
    figure.axes[0].set_xticks([0, 0.001], ["something", "something else"])
    assert overlapping(figure)[1]


def test_attention_over_the_board(episode):
    views = dict(episodes.virtual_views(episode))
    first = next(iter(views))
    peak = views[first] == views[first].max(axis=(1, 2), keepdims=True)
    views[first] = np.where(peak, 0.9, 0.002)  # large enough to be written
    figure = pictures.board_figure(episode, views, TIMES, title="An agent", note="What it is.")
    frames = np.asarray(figure.axes).reshape(3, 5)
    assert [axes.get_title() for axes in frames[0]] == ["board", *views]
    for row, time in zip(frames, TIMES, strict=True):
        np.testing.assert_array_equal(drawn(row[0]), episode.pictures[time])
        written = {text.get_text() for text in row[0].texts}
        assert {"@", "G", "1", "2", "3", "4"} <= written
        for axes, maps in zip(row[1:], views.values(), strict=True):
            weights = maps[time]
            np.testing.assert_array_equal(drawn(axes), episodes.spotlight(episode.pictures[time], weights))
            assert f"peak {weights.max():.2f}" in axes.get_xlabel()
            assert len(axes.texts) == len(axes.patches) == (weights >= pictures.WRITTEN).sum()
            for text in axes.texts:  # on the tile that the weight belongs to
                x, y = text.get_position()
                wanted = weights[int(y) - 1, int(x) - 1]
                assert float(text.get_text()) == pytest.approx(wanted, abs=0.0051)
    assert overlapping(figure) == ([], [])


def test_a_landmark_that_is_not_there_is_said_to_be_so(episode):
    views = episodes.landmark_views(episode, ("inventory",))
    figure = pictures.board_figure(episode, views, [0], title="t", note="n")
    assert figure.axes[1].get_xlabel() == "not on the board"


def test_attention_to_pairs(episode):
    figure = pictures.pair_figure(episode, TIMES, title="An agent")
    frames = np.asarray(figure.axes[:6]).reshape(3, 2)
    maps = np.asarray(analysis.pair_maps(episode.attention[1]))
    for (_, axes), time in zip(frames, TIMES, strict=True):
        np.testing.assert_array_equal(drawn(axes), maps[time, 0])
        assert axes.get_images()[0].get_clim() == (0, 1)
        assert [label.get_text() for label in axes.get_yticklabels()] == ["(1,1)", "(1,2)", "(2,1)", "(2,2)"]
        texts: Any = axes.texts
        marks = {text.get_text(): text.xy[0] for text in texts}
        places = analysis.landmarks(episode.state(time), episode.config)
        for name, entity in places.items():
            (label,) = [label for label in marks if episodes.CODES[name] in label.split("\n")]
            assert marks[label] == entity
    assert "G1: Gem lock, top" in figure.get_supxlabel()
    assert overlapping(figure) == ([], [])


def test_attention_between_standard_entities(episode):
    figure = pictures.standard_figure(episode, 3, title="An agent")
    for head in (0, 1):
        np.testing.assert_array_equal(drawn(figure.axes[head]), episode.attention[0].standard[3, head])
    assert overlapping(figure) == ([], [])


def test_deviations():
    """The largest first, with the interval of its mean; what was seen once only is left out."""
    statistics = {"player": [0.2, 0.4, 0.3], "other entities": [0.1, 0.1, 0.13], "inventory": [0.9]}
    figure = pictures.deviation_figure(statistics, title="Whose attention stands out: a simplicial agent")
    axes = figure.axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["player (3 boards)", "other entities (3 boards)"]
    for container, name in zip(axes.containers, ("player", "other entities"), strict=True):
        bars: Any = container
        mean, low, high = runtime.intervals.mean_interval(statistics[name])
        assert bars.lines[0].get_xdata()[0] == pytest.approx(mean)
        ((start, end),) = bars.lines[2][0].get_segments()
        assert (start[0], end[0]) == pytest.approx((low, high))
    assert overlapping(figure) == ([], [])
    with pytest.raises(ValueError, match=r"statistics: .*expected at least 2"):
        pictures.deviation_figure({"player": [0.1]}, title="t")


def test_phases_of_a_bridge_stand_next_to_each_other():
    """Three bars for each pair, with intervals over boards."""
    draw = np.random.default_rng(0)
    phases = {phase: draw.dirichlet(np.ones(4), 3 + more).tolist() for more, phase in enumerate("abc")}
    figure = pictures.phases_figure(phases, title="Pairs attended to")
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["(1,1)", "(1,2)", "(2,1)", "(2,2)"]
    bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    wanted = np.concatenate([np.mean(rows, axis=0) for rows in phases.values()])
    np.testing.assert_allclose([bar.get_height() for bar in bars], wanted, rtol=1e-6)
    middles = [bar.get_x() + bar.get_width() / 2 for bar in bars]
    np.testing.assert_allclose(middles, np.add.outer([-0.8 / 3, 0, 0.8 / 3], range(4)).ravel(), atol=1e-9)
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text()[:4] for text in legend.get_texts()] == ["a (3", "b (4", "c (5"]
    assert overlapping(figure) == ([], [])
    two = pictures.phases_figure({**phases, "b": phases["b"][:1]}, title="t").axes[0]
    assert len([patch for patch in two.patches if isinstance(patch, Rectangle)]) == 8
    with pytest.raises(ValueError, match="phases: got fewer than 2 boards for each"):
        pictures.phases_figure({"b": phases["b"][:1]}, title="t")


def test_win_rates():
    results = counts(0)
    figure = pictures.win_rate_figure(results, title="An agent")
    axes = figure.axes[0]
    for bars, part in zip(axes.containers[:3], (results.solved, results.died, results.capped), strict=True):
        np.testing.assert_allclose([bar.get_width() for bar in bars], part / results.episodes)
        assert [bar.get_y() + bar.get_height() / 2 for bar in bars] == pytest.approx(range(17))
    bars: Any = axes.containers[3]
    (segments,) = bars.lines[2]
    for (start, end), won in zip(segments.get_segments(), results.solved, strict=True):
        assert (start[0], end[0]) == pytest.approx(runtime.intervals.wilson_interval(int(won), 200))
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[:3] == ["L = 1, no bridge", "(1,1,2)", "L = 2, no bridge"]
    texts: Any = axes.texts
    values = {round(text.xy[1]): text.get_text() for text in texts if text.get_text() != "solved"}
    assert values == {i: f"{won / 200:.3f}" for i, won in enumerate(results.solved)}
    assert overlapping(figure) == ([], [])
    colours = {to_hex(bars[0].get_facecolor()) for bars in axes.containers[:3]}
    assert colours == {*(colour.lower() for colour in runtime.plots.COLOURS[:2]), "#bbbbbb"}


def test_win_rates_over_training():
    rates = {10_000 * (seed + 1): counts(seed) for seed in (2, 0, 1)}
    figure = pictures.win_rates_over_training(rates, title="An agent")
    shown = {}
    for axes in figure.axes:
        for line in axes.lines:
            shown.setdefault(f"{axes.get_title()}: {line.get_label()}", line)
    assert len(shown) == 14 + 1 + 2 + 3
    line = shown["L = 3, bridge opened by key 2: (3,2,5)"]
    number = TYPES.tolist().index([3, 2, 5])
    np.testing.assert_array_equal(line.get_xdata(), sorted(rates))
    wanted = [int(rates[step].solved[number]) / 200 for step in sorted(rates)]
    np.testing.assert_allclose(np.asarray(line.get_ydata(), float), wanted)
    assert overlapping(figure) == ([], [])
    with pytest.raises(ValueError, match="rates: got 1 checkpoints, expected at least 2"):
        pictures.win_rates_over_training({1: counts(0)}, title="t")
    with pytest.raises(ValueError, match="rates: got different puzzle types"):
        pictures.win_rates_over_training({1: counts(0), 2: counts(0, TYPES[:3])}, title="t")


def test_colours_of_more_lengths_than_there_are_colours():
    figure = pictures.over_training({(9, 1, 18): ([1, 2], [0.1, 0.2], [0, 0], [1, 1])}, title="t")
    assert figure.axes[0].lines[0].get_color() == runtime.plots.COLOURS[0]


def test_other_environments():
    """Standard BoxWorld has no bridges, and one lock on its Gem."""
    types = np.asarray(boxworld.puzzles(boxworld.STANDARD))
    figure = pictures.win_rates_over_training({1: counts(0, types), 2: counts(1, types)}, title="An agent")
    assert [axes.get_title() for axes in figure.axes] == [f"L = {length}" for length in range(1, 6)]
    assert overlapping(figure) == ([], [])
    episode = small_episode("relational", "standard", 2)
    views = episodes.landmark_views(episode, ("player", "Gem lock"))
    assert overlapping(
        pictures.board_figure(episode, views, [0, 1], title="An agent", note="What it is.")
    ) == ([], [])
    with pytest.raises(ValueError, match="block: got no 2-simplicial attention"):
        pictures.pair_figure(episode, [0], title="t")
    with pytest.raises(ValueError, match="views, times: got 0 and 1 entries"):
        pictures.board_figure(episode, {}, [0], title="t", note="n")


def test_titles(episode):
    assert pictures.puzzle_title(episode) == "puzzle (2,1,3)"
    standard = small_episode("relational", "standard", 2)
    assert re.fullmatch(r"puzzle L = 2(, \d distractors?)?", pictures.puzzle_title(standard))
