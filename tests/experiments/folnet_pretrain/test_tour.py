"""The tour's stop for pretraining."""

import dataclasses

import pytest

from experiments.folnet_pretrain import figures, tour


def test_its_stop_on_the_tour_shows_filled_in_words(folnet_run, monkeypatch):
    """Numbers are those of the run's record, of both models and at equal steps."""
    config, workdir, results = folnet_run
    asked = []

    def main(config, *, workdir):
        asked.append((config, workdir))
        return results

    monkeypatch.setattr(tour, "main", main)
    stop = tour.tour_stop(workdir, config)
    assert asked == [(config, workdir)]
    losses = [results[name].metrics["eval/mlm_loss"] for name in ("folnet", "baseline")]
    assert (
        f"After 4 steps ({results['folnet'].train_seconds:.0f} s) FOLNet has a loss of {losses[0]:.2f}"
        in stop.meaning
    )
    assert (
        f"{losses[1]:.2f} after the same number of steps and {losses[1]:.2f} after the same time"
        in stop.meaning
    )
    assert "(4 steps)" in stop.meaning
    shares = [results[name].metrics["eval/mlm_accuracy"] for name in ("folnet", "baseline")]
    assert (
        f"FOLNet fills in {shares[0]:.0%} of the masked words correctly, Transformer {shares[1]:.0%}."
        in stop.meaning
    )
    chosen = figures.chosen([results[name].results["filled"] for name in ("folnet", "baseline")])
    assert len(stop.rows) == len(chosen) > 0
    for row, (ours, theirs) in zip(stop.rows, chosen, strict=True):
        assert row == {
            "held-out text": figures.shortened(ours["before"], ours["after"]),
            "original": ours["word"],
            "FOLNet": figures.marked(ours),
            "Transformer": figures.marked(theirs),
        }
    assert [path.name for path in stop.figures] == ["loss_by_steps.png", "loss_by_seconds.png", "filled.png"]
    assert all(path.is_file() for path in stop.figures)
    sizes = [f"{results[name].results['parameters']:,}" for name in ("folnet", "baseline")]
    assert f"The models have {sizes[0]} and {sizes[1]} parameters" in stop.caveat
    assert "does not show which is better" in stop.caveat


@pytest.mark.parametrize(("line", "said"), [(9.0, "from step 2 on it is below 9.00"), (0.0, None)])
def test_the_step_from_which_the_loss_is_below_that_of_frequencies(folnet_run, monkeypatch, line, said):
    config, workdir, results = folnet_run
    first = results["folnet"]
    changed = dataclasses.replace(first, results={**first.results, "unigram_entropy": line})
    monkeypatch.setattr(tour, "main", lambda config, *, workdir: {**results, "folnet": changed})
    meaning = tour.tour_stop(workdir, config).meaning
    assert said in meaning if said else "it is below" not in meaning
