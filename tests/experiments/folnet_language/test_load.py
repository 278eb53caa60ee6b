"""Loading models that write: from a run, a released folder, and as a folder for others."""

import dataclasses
import json

import chex
import jax
import numpy as np
import pytest
import tokenizers

from experiments import registry, runtime
from experiments.exporting.writers import of_writer
from experiments.folnet_language import load, train
from experiments.folnet_language.writing import open_writer
from experiments.folnet_pretrain import cards
from experiments.runtime import packing
from folnet import FOLNetForCausalLM, FOLNetForConditionalGeneration

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_a_run_and_its_release_hold_the_trained_parameters(text_run, tmp_path):
    config, workdir, result = text_run
    trained = load.load(workdir)
    chex.assert_trees_all_equal(trained.params, result.params)
    assert (trained.step, trained.config) == (4, dataclasses.replace(config, accumulate=1))
    assert trained.tokenizer.fingerprint == result.results["vocabulary"]
    assert load.load(workdir, step=2).step == 2
    packing.pack(workdir, train.abstract_state(config), tmp_path / "released")
    released = load.load(tmp_path / "released")
    chex.assert_trees_all_equal(released.params, result.params)
    assert released.tokenizer.fingerprint == result.results["vocabulary"]
    assert load.is_run(workdir)
    assert load.is_run(tmp_path / "released")
    with pytest.raises(runtime.CheckpointError, match="available steps: 4, 2"):
        load.load(workdir, step=3)


@pytest.mark.parametrize(
    ("kind", "model"), [("text_run", FOLNetForCausalLM), ("pairs_run", FOLNetForConditionalGeneration)]
)
def test_a_run_and_its_folder_write_the_same_with_the_tokens_that_begin_and_end(
    kind, model, request, tmp_path
):
    """By the same model with the same parameters and words."""
    config, workdir, result = request.getfixturevalue(kind)
    load.load(workdir).save_pretrained(tmp_path)
    for place in (workdir, tmp_path):
        writer = open_writer(place)
        assert isinstance(writer.model, model)
        assert writer.model == config.make_model()
        chex.assert_trees_all_equal(jax.tree.map(np.asarray, dict(writer.params)), dict(result.params))
        assert writer.tokenizer.fingerprint == result.results["vocabulary"]
    tokenizer = writer.tokenizer
    begin = {"bos_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id, "pad_token_id": 0}
    begin |= {"decoder_start_token_id": tokenizer.cls_id} if config.data.pairs else {}
    found = json.loads((tmp_path / load.GENERATION_FILE).read_text())
    never = [0, tokenizer.cls_id, tokenizer.mask_id]
    never += range(tokenizer.vocab_size, config.model.vocab_size)
    assert found == {**begin, "max_new_tokens": config.new_tokens, "suppress_tokens": sorted(never)}
    assert not load.is_run(tmp_path)
    card = (tmp_path / cards.FILE).read_text(encoding="utf-8")
    tag = "text2text-generation" if config.data.pairs else "text-generation"
    assert f"pipeline_tag: {tag}\n" in card
    assert ("from transformers import pipeline" in card) != config.data.pairs
    assert ("from transformers import AutoModelForSeq2SeqLM, AutoTokenizer" in card) == config.data.pairs
    assert "| updates | 4 |\n" in card
    (tmp_path / cards.FILE).write_text("mine", encoding="utf-8")
    load.load(workdir).save_pretrained(tmp_path)
    assert (tmp_path / cards.FILE).read_text(encoding="utf-8") == "mine"
    # As `transformers` reads them, only texts that are not to be continued end with [SEP].
    read = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert read.encode("").ids == [tokenizer.cls_id, *([tokenizer.sep_id] if config.data.pairs else [])]


def test_a_checkpoint_of_a_run_is_chosen_by_its_step(text_run):
    workdir = text_run[1]
    chex.assert_trees_all_equal(open_writer(workdir, step=2).params, load.load(workdir, step=2).params)


def test_it_can_be_exported(pairs_run, monkeypatch):
    """As a function that generates greedily."""
    config, workdir, result = pairs_run
    made = []
    monkeypatch.setattr(load, "of_writer", lambda *given: made.append(given) or of_writer(*given))
    opened = registry.open_model(workdir)
    [(model, params, tokenizer, new_tokens)] = made
    assert (model, new_tokens) == (config.make_model(), 32)
    assert tokenizer.fingerprint == result.results["vocabulary"]
    for some in (params, opened.params):
        chex.assert_trees_all_equal(some, result.params)
    assert opened.outputs["tokens"].shape == ("batch", 32)
    assert (opened.source["experiment"], opened.source["step"]) == ("experiments.folnet_language", 4)
    assert opened.source["params_sha256"] == result.summary["params_sha256"]
    assert load.open_model(workdir, step=2).source["step"] == 2
