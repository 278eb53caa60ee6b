"""Figures of the mathematics experiment show the numbers they were given."""

import jax
import numpy as np
import pytest
from matplotlib.patches import Rectangle

from experiments import runtime
from experiments.mathematics import figures, train
from tests.experiments.mathematics.small import small
from tp_transformer import TPTransformer, mathematics
from tp_transformer.evaluation import Scores, Share

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SCORES = {
    "TP-Transformer": Scores("interpolate", {"numbers__gcd": Share(3, 4), "algebra__linear_1d": Share(1, 4)}),
    figures.ALWAYS: Scores("interpolate", {"numbers__gcd": Share(1, 4)}),
}


def test_a_bar_is_as_long_as_its_exact_match():
    (axes,) = figures.bars(SCORES, title="t").axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["numbers: gcd", "algebra: linear 1d"]
    widths = [[bar.get_width() for bar in container] for container in axes.containers]
    assert widths[0] == [0.75, 0.25]
    assert widths[1][0] == 0.25
    assert np.isnan(widths[1][1])
    assert [c.get_label() for c in axes.containers] == [
        "TP-Transformer: 50.0% on average",
        f"{figures.ALWAYS}: 25.0% on average",
    ]


def test_all_modules_have_their_bars_and_none_is_refused(tmp_path):
    every = Scores("interpolate", {module: Share(1, 2) for module in mathematics.MODULES})
    figure = figures.bars({"a": every, "b": every}, title="t")
    assert [len(container) for container in figure.axes[0].containers] == [56, 56]
    assert runtime.plots.save(figure, tmp_path / "bars.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match="shares: got no module"):
        figures.bars({"a": Scores("interpolate", {})}, title="t")


def test_every_character_has_its_clusters_colour_and_number():
    labels = np.array([[0, 1, 2, 0, -1], [2, 2, 1, 0, 1]])
    (axes,) = figures.coloured(["#ab%", "#cde"], labels[:, :], title="t", width=3).axes
    colours = figures.palette(3)
    placed = {
        (patch.get_x(), round(patch.get_y() / 1.25)): tuple(patch.get_facecolor()[:3])
        for patch in axes.patches
        if isinstance(patch, Rectangle)
    }
    written = {}
    for text in axes.texts:
        x, y = text.get_position()
        written.setdefault((x - 0.5, int(y // 1.25)), []).append(text.get_text())
    # The first question takes a line and one character of the next, as does the second.
    expected = {
        (0, 0): ("#", 0), (1, 0): ("a", 1), (2, 0): ("b", 2), (0, 1): ("%", 0),
        (0, 2): ("#", 2), (1, 2): ("c", 2), (2, 2): ("d", 1), (0, 3): ("e", 0),
    }  # fmt: skip
    assert placed.keys() == written.keys() == expected.keys()
    for place, (character, label) in expected.items():
        assert placed[place] == pytest.approx(colours[label])
        assert written[place] == [character, str(label)]


@pytest.mark.parametrize("labels", [[[0, 1]], [[0, 1, -1]]])
def test_a_character_without_a_cluster_is_refused(labels):
    with pytest.raises(ValueError, match=r"labels: got .*, expected a cluster for each character of 'abc'"):
        figures.coloured(["abc"], np.array(labels), title="t")


def test_colours_of_twenty_clusters_differ():
    colours = np.array(figures.palette(20))
    distances = np.abs(colours[:, None] - colours[None]).sum(-1) + 9 * np.eye(20)
    assert distances.min() > 0.05
    assert ((colours >= 0) & (colours <= 1)).all()


def test_the_picture_of_roles_has_what_clusters_say():
    config = small()
    model, source = config.model.make(), config.data.open()
    assert isinstance(model, TPTransformer)
    params = jax.jit(train.make_init(model))(jax.random.key(0))
    figure = figures.of_roles(config, model, params, source, "numbers__is_factor")
    assert figure is not None
    questions = [pair.question for pair in source.questions("interpolate", "numbers__is_factor")]
    some = questions[::1][: figures.ROWS]
    letters = [text.get_text() for text in figure.axes[0].texts][::2]
    assert len(letters) == sum(len(q) + 2 for q in _sampled(some, 8))
    config.role_clusters = 10_000
    assert figures.of_roles(config, model, params, source, "numbers__is_factor") is None


def _sampled(questions, count):
    return [questions[index * len(questions) // count] for index in range(count)]
