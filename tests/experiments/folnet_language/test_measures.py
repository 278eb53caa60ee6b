"""Perplexity, exact matches and samples of models that write."""

import dataclasses
import math
import types
from typing import Any

import numpy as np
import pytest

from experiments.folnet_language import measures, train
from experiments.folnet_language.data import PairRows
from experiments.folnet_language.writing import Writer, Written
from folnet.objective import IGNORED
from folnet.tasks.pairs import Pair

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_exact_matches_are_what_greedy_generation_writes(pairs_run):
    """They are measured with the target given, here what the model writes or something else."""
    config, _, result = pairs_run
    data, model = train.open_data(config), config.make_model()
    writer = Writer(model, result.params, data.tokenizer)
    inputs = [f"the {word} cat sees ." for word in ("big", "old", "red", "new", "bird")]
    written = writer(inputs, 7)
    pairs = [Pair(text, one.text) for text, [one] in zip(inputs, written, strict=True)]
    # The model does not end its texts, so the words before the end are what it must get right.
    rows = PairRows(pairs, data.tokenizer, 16, 7)
    evaluate = measures.make_evaluate(config, train.make_losses(model), data._replace(held_out=rows))
    assert evaluate(result.params)["exact_match"] == 1
    wrong = [pair._replace(target=f"dog {pair.target}") if n % 2 else pair for n, pair in enumerate(pairs)]
    rows = PairRows(wrong, data.tokenizer, 16, 7)
    evaluate = measures.make_evaluate(config, train.make_losses(model), data._replace(held_out=rows))
    assert evaluate(result.params)["exact_match"] == pytest.approx(3 / 5)


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
    found = measures.samples(config, writer, data.held_out)
    assert found == result.results["samples"]
    labels = data.held_out.take([0])["labels"][0]
    first = found[0]
    assert first["given"] == data.tokenizer.decode(labels[1 : 1 + config.prompt_tokens])
    after = labels[1 + config.prompt_tokens :][: config.new_tokens]
    assert first["target"] == data.tokenizer.decode(after[after != IGNORED[0]])
    [[greedy]] = writer.continued([labels[: 1 + config.prompt_tokens].tolist()], config.new_tokens)
    assert first["greedy"] == greedy.text
    assert measures.samples(dataclasses.replace(config, samples=0), writer, data.held_out) == []
    # Sampled words depend on the seed; the others do not.
    other = measures.samples(dataclasses.replace(config, seed=5), writer, data.held_out)
    assert [row["greedy"] for row in other] == [row["greedy"] for row in found]
    assert [row["sampled"] for row in other] != [row["sampled"] for row in found]


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
    assert found == {"given": decode([5]), "target": decode([6]), **dict.fromkeys(measures.WAYS, "so")}
    assert seen == [[[2, 5]]] * 3
