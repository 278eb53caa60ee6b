"""Loading pretrained models: from a run, a released folder, and as a directory to fine-tune from."""

import dataclasses
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import runtime
from experiments.folnet_pretrain import cards, load, train
from experiments.runtime import packing
from folnet import FOLNetForPreTraining, FOLNetForSequenceClassification
from folnet.tokenization import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_a_run_its_baseline_and_its_release_hold_the_trained_parameters(folnet_run, tmp_path):
    config, workdir, results = folnet_run
    trained = load.load(workdir)
    chex.assert_trees_all_equal(trained.params, results["folnet"].params)
    assert (trained.step, trained.config) == (
        4,
        dataclasses.replace(config.resolved(), accumulate=1),
    )  # as was chosen
    assert load.load(str(workdir), step=2).step == 2
    opened = load.open_model(workdir, step=2)
    assert (opened.source["step"], opened.lengths) == (2, (16,))
    baseline = load.load(workdir / "baseline")
    chex.assert_trees_all_equal(baseline.params, results["baseline"].params)
    wanted = results["folnet"].results["vocabulary"]
    assert trained.tokenizer.fingerprint == baseline.tokenizer.fingerprint == wanted
    packing.pack(workdir, train.abstract_state(config), tmp_path / "released")
    released = load.load(tmp_path / "released")
    chex.assert_trees_all_equal(released.params, results["folnet"].params)
    assert released.tokenizer.fingerprint == wanted
    text = config.data.source
    with open(text, "a", encoding="utf-8") as file:
        size = file.tell()
        file.write("".join(f"\n\nQuite another text {number}." for number in range(50)))
    try:
        with pytest.raises(ValueError, match="the text has changed since"):
            load.load(tmp_path / "released")
        assert load.load(workdir).step == 4  # a run keeps its vocabulary
    finally:
        with open(text, "r+b") as file:
            file.truncate(size)


@pytest.mark.parametrize("name", ["folnet", "baseline"])
def test_fine_tuning_starts_from_it(folnet_run, tmp_path, name):
    """The directory preserves the parameters; a new head is drawn for the trained encoder."""
    _, workdir, results = folnet_run
    run = workdir if name == "folnet" else workdir / name
    load.load(run).save_pretrained(tmp_path / "model")
    text = (tmp_path / "model" / cards.FILE).read_text(encoding="utf-8")
    assert "pipeline_tag: fill-mask\n" in text
    assert "| updates | 4 |\n" in text
    assert WordPieceTokenizer.from_pretrained(tmp_path / "model").lowercase
    model, params = FOLNetForPreTraining.from_pretrained(tmp_path / "model")
    chex.assert_trees_all_equal(params, jax.tree.map(np.asarray, dict(results[name].params)))
    assert model.config.pretrain_loss == "MLM.SOP"
    classifier, tuned = FOLNetForSequenceClassification.from_pretrained(
        tmp_path / "model", key=jax.random.key(0), num_labels=3
    )
    chex.assert_trees_all_equal(tuned["folnet"], params["folnet"])
    tokenizer = WordPieceTokenizer.load(tmp_path / "model" / "vocab.txt")
    inputs = tokenizer(["The cat sees the dog."], length=12)
    out: Any = jax.eval_shape(
        lambda params: classifier.apply({"params": params}, jnp.asarray(inputs.input_ids)), tuned
    )
    assert out.logits.shape == (1, 3)


def test_the_folder_says_that_case_counts(folnet_run, tmp_path):
    trained = load.load(folnet_run[1])
    cased = WordPieceTokenizer(trained.tokenizer.vocabulary, lowercase=False)
    dataclasses.replace(trained, tokenizer=cased).save_pretrained(tmp_path)
    assert not WordPieceTokenizer.from_pretrained(tmp_path).lowercase


def test_folders_without_a_run_are_reported(folnet_run, tmp_path):
    with pytest.raises(ValueError, match=r"not a run of experiments\.folnet_pretrain"):
        load.load(tmp_path)
    with pytest.raises(runtime.CheckpointError, match="available steps: 4, 2"):
        load.load(folnet_run[1], step=3)
