"""The figures of pretraining: their texts and colors."""

import dataclasses

import pytest
from matplotlib.colors import to_hex

from experiments import runtime
from experiments.folnet_pretrain import figures

ANSWER = {"before": "the cat", "word": "sees", "after": "the dog.", "guess": "sees", "probability": 0.5}
WRONG = {"guess": "the", "probability": 0.251, "right": False}
CURVES = {"FOLNet": [(10, 1.0, 5.0), (20, 2.0, 4.0)], "Transformer": [(10, 0.5, 5.5), (40, 2.0, 4.5)]}


def lines(figure):
    return {
        line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in figure.axes[0].lines
    }


@pytest.mark.usefixtures("looks")
def test_losses_against_steps_and_seconds():
    by_steps = lines(figures.loss(CURVES, 4.2, seconds=False, last=20))
    assert by_steps == {
        "FOLNet": ([10, 20], [5.0, 4.0]),
        "Transformer": ([10], [5.5]),
        figures.LINE: ([0, 20], [4.2, 4.2]),
    }
    by_seconds = lines(figures.loss(CURVES, 4.2, seconds=True))
    assert by_seconds["Transformer"] == ([0.5, 2.0], [5.5, 4.5])
    assert by_seconds[figures.LINE] == ([0, 2.0], [4.2, 4.2])
    with pytest.raises(ValueError, match="curves: got no measurement"):
        figures.loss({"FOLNet": []}, 4.2, seconds=True)


@pytest.mark.usefixtures("looks")
def test_words_filled_in_are_marked():
    right = ANSWER | {"right": True}
    figure = figures.filled({"FOLNet": [right], "Transformer": [right | WRONG]})
    texts = {text.get_text(): to_hex(text.get_color()) for text in figure.axes[0].texts}
    assert texts["\N{CHECK MARK} sees (50%)"] == figures.RIGHT
    assert texts["\N{BALLOT X} the (25%)"] == figures.WRONG
    assert {"the cat ____ the dog.", "sees", "original"} <= set(texts)
    assert {"FOLNet\n1 of 1 correct", "Transformer\n0 of 1 correct"} <= set(texts)
    with pytest.raises(ValueError, match="answers: got different blanks"):
        figures.filled({"FOLNet": [right], "Transformer": [right | {"word": "hears"}]})


def test_a_picture_has_right_and_wrong_answers_of_either_model():
    """In half of the rows, some model is correct; the order is kept."""

    def answers(right):
        return [ANSWER | {"word": str(index), "right": index in right} for index in range(20)]

    rows = figures.chosen([answers({3, 9, 17, 19}), answers({9, 12, 18})], 8)
    assert [row[0]["word"] for row in rows] == ["0", "1", "2", "3", "4", "9", "12", "17"]
    assert [[entry["right"] for entry in row] for row in rows if row[0]["word"] == "12"] == [[False, True]]
    assert len(figures.chosen([answers({3})], 8)) == 5
    assert figures.chosen([answers(set(range(19)))], 8)[-1][0]["word"] == "19"
    assert figures.chosen([answers(set())], 0) == []


def test_long_texts_are_shortened_at_words():
    assert figures.shortened("a " * 30, "b " * 30, characters=8) == "... a a a  ____ b b b b ..."
    assert figures.shortened("##ing it", "now") == "...ing it ____ now"
    assert figures.shortened("it is", "so it", characters=5) == "it is ____ so it"
    assert figures.shortened("but it is", "so it is", characters=5) == "... is ____ so ..."


def test_figures_of_a_run(folnet_run, monkeypatch):
    """With and without a baseline, and without blanks; each model's curve is that of its own record."""
    config, workdir, results = folnet_run
    configs = {"folnet": config, "baseline": config.for_baseline()}
    drawn = {}

    def save(figure, path):
        drawn[path] = figure
        return path

    monkeypatch.setattr(figures.runtime.plots, "save", save)
    names = ["loss_by_steps", "loss_by_seconds", "filled"]
    for models in (("folnet",), ("folnet", "baseline")):
        found = figures.draw(workdir, {m: configs[m] for m in models}, {m: results[m] for m in models})
        assert list(found) == names
        assert list(found.values()) == [workdir / f"{name}.png" for name in names]
        curves = lines(drawn[found["loss_by_steps"]])
        for model, shown in zip(models, ("FOLNet", "Transformer"), strict=False):
            below = workdir if model == "folnet" else workdir / model
            rows = runtime.metrics.read(below / "metrics.jsonl")
            assert curves.pop(shown) == ([2, 4], [row["eval/mlm_loss"] for row in rows])
        entropy = results["folnet"].results["unigram_entropy"]
        assert curves == {figures.LINE: ([0, 4], [entropy, entropy])}
    alone = dataclasses.replace(results["folnet"], results={**results["folnet"].results, "filled": []})
    assert list(figures.draw(workdir, {"folnet": config}, {"folnet": alone})) == names[:2]
