"""Figures of the mathematics experiment show the numbers they were given."""

import colorsys
import json

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.patches import Rectangle

from experiments import runtime
from experiments.mathematics import figures
from tests.experiments.mathematics.small import small, talkative, with_model
from tp_transformer import TPTransformer, mathematics, roles
from tp_transformer.evaluation import Scores, Share

pytestmark = pytest.mark.usefixtures("compiled_quickly", "looks")

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
    places = [[bar.get_y() + bar.get_height() / 2 for bar in container] for container in axes.containers]
    assert np.ravel(places) == pytest.approx([-0.2, 0.8, 0.2, 1.2])  # side by side around the names
    assert {round(bar.get_height(), 6) for container in axes.containers for bar in container} == {0.4}
    assert (axes.get_xlim(), axes.get_ylim()) == ((0, 1), (1.5, -0.5))  # from top to bottom
    assert [line.get_xdata()[0] for line in axes.get_lines()] == [0.95]  # pyrefly: ignore
    colours = [container[0].get_facecolor()[:3] for container in axes.containers]
    assert len(set(colours[0])) > 1
    assert len(set(colours[1])) == 1  # grey
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
    boxes = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    placed = {(box.get_x(), box.get_y() / 1.25): tuple(box.get_facecolor()[:3]) for box in boxes}
    assert {(box.get_width(), box.get_height()) for box in boxes} == {(1, 1)}
    assert axes.get_xlim() == (0, 3)
    bottom, top = axes.get_ylim()
    assert -0.2 < top <= 0 < 4.75 <= bottom <= 5  # nothing is cut off, and the first line is at the top
    written = {}
    for text in axes.texts:
        x, y = text.get_position()
        line, inside = divmod(y, 1.25)
        written.setdefault((x - 0.5, line), []).append(text.get_text())
        assert inside == pytest.approx(0.36 if len(written[x - 0.5, line]) == 1 else 0.82)
        assert (text.get_horizontalalignment(), text.get_verticalalignment()) == ("center", "center")
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
    hues, lights, _ = zip(*(colorsys.rgb_to_hls(*colour) for colour in colours), strict=True)
    steps = np.diff(hues) % 1
    assert np.minimum(steps, 1 - steps) == pytest.approx(np.full(19, (3 - 5**0.5) / 2))  # the golden ratio
    assert lights == pytest.approx([0.82, 0.7] * 10)
    assert max(range(3), key=list(colours[0]).__getitem__) == 2  # the most frequent cluster is blue
    assert ((colours >= 0) & (colours <= 1)).all()


def test_curves_of_learning_are_the_recorded_numbers(tmp_path):
    """One model has a curve per module and the average; with a baseline, averages alone."""
    columns = {"eval/interpolate": 0.5, "eval/interpolate/numbers__gcd": 0.75}
    columns |= {"eval/interpolate/numbers__lcm": 0.25, "loss": 3.0}
    rows = [{"step": 1, "loss": 4.0}, {"step": 2, **columns}, {"step": 6, **columns, "eval/interpolate": 0.6}]
    other = [{"step": 8, **columns, "eval/interpolate": 0.1}]
    (tmp_path / "baseline").mkdir()
    for folder, some in ((tmp_path, rows), (tmp_path / "baseline", other)):
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    always = Scores("interpolate", {"numbers__gcd": Share(1, 4)})

    def drawn(*names):
        configs = dict(zip(("tp_transformer", "baseline"), map(with_name, names), strict=False))
        figure = figures.learning(tmp_path, configs, always)
        (axes,) = figure.axes
        assert axes.get_ylim() == pytest.approx((-0.03, 1.03))
        assert figure.get_size_inches() == pytest.approx((6.0, 3.6))
        lines = axes.get_lines()
        return {line.get_label(): [*zip(*map(list, line.get_data()), strict=True)] for line in lines}  # pyrefly: ignore

    def with_name(name):
        return with_model(name=name)

    constant = f"{figures.ALWAYS}, average"
    assert drawn("tp_transformer") == {
        "TP-Transformer, average": [(2, 0.5), (6, 0.6)],
        "numbers: gcd": [(2, 0.75), (6, 0.75)],
        "numbers: lcm": [(2, 0.25), (6, 0.25)],
        constant: [(2, 0.25), (6, 0.25)],
    }
    assert list(drawn("tp_transformer"))[1:3] == ["numbers: gcd", "numbers: lcm"]
    for count, curves in ((1, 2), (5, 7), (6, 2)):
        some = {f"eval/interpolate/numbers__{letter}": 0.5 for letter in "fedcba"[:count]}
        row = {"step": 1, "eval/interpolate": 0.5, **some}
        (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
        found = list(drawn("tp_transformer"))
        assert len(found) == curves
        assert found == [found[0], *sorted(found[1:-1]), constant]  # pyrefly: ignore
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert drawn("tp_transformer", "transformer") == {
        "TP-Transformer": [(2, 0.5), (6, 0.6)],
        "Transformer": [(8, 0.1)],
        constant: [(2, 0.25), (8, 0.25)],
    }


def test_the_picture_of_roles_has_what_clusters_say(monkeypatch):
    config = small()
    trained, source = talkative(mathematics.DEFAULT), config.data.open()
    model, params = trained.model, trained.params
    assert isinstance(model, TPTransformer)
    figure = figures.of_roles(config, model, params, source, ["numbers__is_factor"])
    assert figure is not None
    questions = [pair.question for pair in source.questions("interpolate", "numbers__is_factor")]
    some = _sampled(questions, 8)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert "".join(texts[::2]) == "".join(f"#{question}%" for question in some)
    ids = jnp.asarray(mathematics.DEFAULT.encode_batch(some))
    clusters = roles.cluster_roles(model, params, ids, head=0, k=3, seed=config.seed)
    labels = [row[: len(question) + 2] for row, question in zip(clusters.labels, some, strict=True)]
    assert texts[1::2] == [str(label) for row in labels for label in row]
    title = " ".join(figure.axes[0].get_title(loc="left").split())
    assert f"3 clusters of 8 questions, {1 - clusters.inertia / clusters.total:.0%} of" in title
    config.role_clusters = 10_000
    assert figures.of_roles(config, model, params, source, ["numbers__is_factor"]) is None
    given = []

    def clustered(*_, **chosen):
        given.append(chosen)
        raise ValueError

    monkeypatch.setattr(figures.roles, "cluster_roles", clustered)
    config = small(seed=5, role_head=1)
    assert figures.of_roles(config, model, params, source, ["numbers__is_factor"]) is None
    assert given == [{"head": 1, "k": 3, "seed": 5}]


def _sampled(questions, count):
    return [questions[index * len(questions) // count] for index in range(count)]
