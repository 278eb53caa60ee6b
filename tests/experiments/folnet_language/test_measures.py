"""Perplexity, exact matches and samples of models that write."""

import dataclasses
import math
import types
from typing import Any

import jax
import numpy as np
import pytest

from experiments.folnet_language import measures, train
from experiments.folnet_language.data import PairRows
from experiments.folnet_language.writing import Writer, Written
from folnet.objective import IGNORED
from folnet.tasks.pairs import Pair
from kernels.decoding import Sampling

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_exact_matches_are_what_greedy_generation_writes(pairs_run):
    """They are measured with the target given: what the model writes, and twice something else."""
    config, _, result = pairs_run
    data, model = train.open_data(config), config.make_model()
    writer = Writer(model, result.params, data.tokenizer)
    inputs = [f"the {word} cat sees ." for word in ("big", "old", "red", "new", "bird")]
    written = writer(inputs, 7)
    pairs = [Pair(text, one.text) for text, [one] in zip(inputs, written, strict=True)]
    # The model does not end its texts, so the words before the end are what it must get right.
    wrong = [pair._replace(target=f"dog {pair.target}") for pair in pairs[1::2]]
    rows = PairRows(pairs + wrong, data.tokenizer, 16, 7)
    evaluate = measures.make_evaluate(config, train.make_losses(model), data._replace(held_out=rows))
    assert evaluate(result.params)["exact_match"] == pytest.approx(5 / 7)


def test_perplexity():
    assert measures.perplexity(math.log(7)) == pytest.approx(7)
    assert measures.perplexity(1e4) == math.inf


def test_the_perplexity_of_word_frequencies_is_of_the_words_to_predict(text_run, pairs_run):
    for config, _, result in (text_run, pairs_run):
        data = train.open_data(config)
        counted = []
        for rows in (data.train, data.held_out):
            labels = rows.take(range(len(rows)))["labels"]
            labels = labels if config.data.pairs else labels[:, 1:]
            counted.append(np.bincount(labels[labels != IGNORED[0]], minlength=config.model.vocab_size))
            np.testing.assert_array_equal(measures.counts(rows, config), counted[-1])
        learned, held_out = counted
        assert learned[data.tokenizer.cls_id] == 0
        chances = (learned + 1) / (learned + 1).sum()
        known = -held_out @ np.log(chances) / held_out.sum()
        assert result.results["unigram_perplexity"] == pytest.approx(math.exp(known))


def test_samples_continue_what_was_given(text_run):
    config, _, result = text_run
    data = train.open_data(config)
    writer = Writer(config.make_model(), result.params, data.tokenizer)
    found, prompts = result.results["samples"], []
    assert [list(row) for row in found] == [["given", "target", "greedy", "sampled"]] * 2
    for row, place in zip(found, (0, len(data.held_out) // 2), strict=True):
        labels = data.held_out.take([place])["labels"][0]
        prompts.append(labels[: 1 + config.prompt_tokens].tolist())
        assert row["given"] == data.tokenizer.decode(prompts[-1][1:])
        after = labels[1 + config.prompt_tokens :][: config.new_tokens]
        assert row["target"] == data.tokenizer.decode(after[after != IGNORED[0]])
    greedy = writer.continued(prompts, config.new_tokens)
    assert [row["greedy"] for row in found] == [one.text for [one] in greedy]
    assert measures.samples(dataclasses.replace(config, samples=0), writer, data.held_out) == []


def test_samples_are_written_in_each_way_with_the_key_of_the_seed(pairs_run):
    """Of pairs they are what is written after evenly spaced inputs, next to their targets."""
    config, _, _ = pairs_run
    data = train.open_data(config)
    seen = []

    def continued(prompts, new_tokens, **options):
        seen.append((prompts, new_tokens, options))
        return [[Written(f"way {len(seen)}", True, None), Written("worse", True, None)] for _ in prompts]

    read = Writer(config.make_model(), None, data.tokenizer).read
    writer: Any = types.SimpleNamespace(read=read, continued=continued)
    config = dataclasses.replace(config, samples=2, seed=5, beams=2, top_p=0.7)
    rows: Any = data.held_out
    chosen = [rows.pairs[0], rows.pairs[len(rows) // 2]]
    assert measures.samples(config, writer, rows) == [
        {"given": pair.input, "target": pair.target, "greedy": "way 1", "sampled": "way 2", "beam": "way 3"}
        for pair in chosen
    ]
    keys = [options.pop("key", None) for _, _, options in seen]
    assert keys == [None, jax.random.key(5), None]
    given = read([pair.input for pair in chosen]), config.new_tokens
    assert seen == [(*given, {}), (*given, {"sampling": Sampling(top_p=0.7)}), (*given, {"num_beams": 2})]


def test_a_short_text_is_not_given_whole(text_run):
    """At least its last word is left to write."""
    config, _, _ = text_run
    data: Any = train.open_data(config)
    short = types.SimpleNamespace(take=lambda indices: {"labels": np.array([[2, 5, 6, -1, -1]])})
    rows: Any = type("Rows", (), {"__len__": lambda self: 1, "take": lambda self, some: short.take(some)})()
    seen = []

    def continued(prompts, new_tokens, **options):
        seen.append(prompts)
        return [[Written("so", True, None)]]

    writer: Any = types.SimpleNamespace(tokenizer=data.tokenizer, continued=continued)
    [found] = measures.samples(config, writer, rows)
    decode = data.tokenizer.decode
    assert found == {"given": decode([5]), "target": decode([6]), "greedy": "so", "sampled": "so"}
    assert seen == [[[2, 5]]] * 2
