"""FOLNet's pretraining: user errors, the loss, a run and its files, and continued runs."""

import dataclasses
import json
import os
import random
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import runtime
from experiments.folnet_pretrain import data, measures, train
from experiments.folnet_pretrain.config import get_config
from folnet import parameters, pretraining
from folnet.heads import PreTrainingOutput
from folnet.tokenization import WordPieceTokenizer
from tests.experiments.folnet_pretrain.small import small, with_data, with_model, write_text
from tests.folnet import small as small_folnet

pytestmark = pytest.mark.usefixtures("compiled_quickly")


ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text"))


def shapes(config, examples=4):
    """Returns the number of parameters, their shapes in one layer, and the shapes of the loss's sums."""
    layers, length = config.model.num_hidden_layers, config.data.length
    config.model.num_hidden_layers = 1
    model = config.model.make(config.data.pretrain_loss)
    params = jax.eval_shape(train.make_init(model), jax.random.key(0))
    numbers = {name: leaf.size for name, leaf in parameters.flatten(params).items()}
    of_layer = sum(size for name, size in numbers.items() if ".layers_0." in name)
    count = sum(numbers.values()) + (layers - 1) * of_layer

    def ids(*shape):
        return jax.ShapeDtypeStruct((examples, *shape), jnp.int32)

    batch = {name: ids(length) for name in ("input_ids", "token_type_ids")}
    batch |= {name: ids(20) for name in ("mlm_positions", "mlm_labels")} | {"next_sentence_label": ids()}
    batch |= dict.fromkeys(("predictions", "sentences"), jax.ShapeDtypeStruct((), jnp.float32))
    return count, params, jax.eval_shape(train.make_loss(config, model), params, batch, jax.random.key(0))


@pytest.mark.parametrize(
    ("preset", "count"),
    [
        ("base_16gb", 139_004_610),
        ("bert", 110_109_506),
        ("large_160gb", 438_333_890),
    ],
)
def test_the_papers_models_can_be_traced(preset, count):
    """The parameter counts are the documented ones, and the loss can be traced at every size."""
    found, params, sums = shapes(get_config(preset).resolved())
    assert found == count
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))
    assert (sums.numerator.shape, sums.numerator.dtype) == ((), jnp.float32)
    assert set(sums.metrics) == {"mlm_loss", "mlm_accuracy", "sentence_loss", "sentence_accuracy"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            lambda source: with_data(source, directory="none/here"),
            r"python -m experiments\.folnet_pretrain\.data .*--out=none/here",
        ),
        (
            lambda source: with_data(source.with_name("other.txt")),
            "other.txt, which does not exist",
        ),
        (lambda source: with_data(source, new_vocabulary=20), "vocab_size: got 20, expected at least"),
        (lambda source: with_model(source, vocab_size=40), "model.vocab_size: got 40, expected at least"),
    ],
)
def test_missing_text_is_reported_before_anything_is_compiled(source, tmp_path, monkeypatch, config, message):
    monkeypatch.setattr(train.runtime, "fit", None)  # calling it would fail
    with pytest.raises(runtime.WorkdirError, match=message):
        train.main(config(source), workdir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_mistakes_on_the_command_line_are_one_line(tmp_path):
    command = [
        sys.executable, "-m", "experiments.folnet_pretrain",
        "--config=base_16gb", f"--workdir={tmp_path / 'run'}",
    ]  # fmt: skip
    for flags, message in (
        ([], "data.directory: got data/16gb, expected prepared text. To prepare it, run: python -m"),
        (["--config.model.operators=jx.a"], "'x' is not an operator"),
        (["--config.model.width=3"], "--config.model.width: no such field"),
    ):
        done = subprocess.run(
            [*command, *flags], cwd=ROOT, env={**os.environ, "JAX_PLATFORMS": "cpu"}, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert message in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_a_prepared_directory_is_the_same_text(source, tmp_path):
    """Prepared text equals text prepared in memory; other settings are refused."""
    config = small(source)
    memory = config.data.open()
    documents = pretraining.open_documents(source)
    made = data.prepare(
        tmp_path,
        documents,
        memory.tokenizer,
        length=16,
        held_out=config.data.held_out,
        processes=1,
        show=False,
    )
    assert made.documents == len(documents)
    prepared = with_data(source.with_name("none.txt"), directory=str(tmp_path))
    text = train.open_text(prepared)
    assert text.tokenizer.fingerprint == memory.tokenizer.fingerprint
    for step in (0, 5):
        ours, theirs = (train.training_batches(config, of)(step) for of in (text, memory))
        chex.assert_trees_all_equal(tuple(ours), tuple(theirs))
    assert measures.lines(prepared, text) == measures.lines(config, memory)
    for name, value in (("length", 32), ("lowercase", False)):
        with pytest.raises(runtime.WorkdirError, match=f"data.{name}: got {value}, expected"):
            train.open_text(with_data(source, directory=str(tmp_path), **{name: value}))


def test_the_vocabulary_is_of_the_training_text(tmp_path):
    """Held-out documents have no part in it; without any the text is refused."""
    draw, path = random.Random(0), tmp_path / "names.txt"
    names = ["".join(draw.choices("abcdefghij", k=5)) for _ in range(60)]
    every = [f"the {name} saw another {name}, and no {name} was left" for name in names]
    path.write_text("\n\n".join(every) + "\n")
    config = with_data(path)
    learned = [text for text in every if not pretraining.is_held_out(text, config.data.held_out)]
    wanted, other = (WordPieceTokenizer.train(text, config.data.new_vocabulary) for text in (learned, every))
    assert config.data.open().tokenizer.fingerprint == wanted.fingerprint != other.fingerprint
    path = tmp_path / "one.txt"
    path.write_text("\n\n".join(learned) + "\n")
    message = rf"data\.held_out: got 0\.2, expected a larger fraction, .*: none of the {len(learned)} of"
    with pytest.raises(ValueError, match=message):
        with_data(path).data.open()


def test_held_out_text_is_enough_for_the_objective(tmp_path):
    """Where the next sentence may be of another document there must be another; known before training."""
    words, path = ("cat", "dog", "bird", "fish"), tmp_path / "texts.txt"
    every = [" ".join(f"The {a} sees the {b}." for a in words for b in words) for _ in range(9)]
    texts = [f"Number {number}. {text}" for number, text in enumerate(every)]
    held = [text for text in texts if pretraining.is_held_out(text, 0.2)]
    learned = [text for text in texts if text not in held]
    assert min(len(held), len(learned)) > 1
    for some, objective in ((held[:1], "sop"), (held[:2], "nsp")):
        path.write_text("\n\n".join((*learned, *some)))
        train.open_text(with_data(path, objective=objective))
    path.write_text("\n\n".join((*learned, held[0])))
    with pytest.raises(runtime.WorkdirError, match="data: windows: got those of one document, expected at"):
        train.open_text(with_data(path, objective="nsp"))


def test_the_vocabulary_of_a_workdir_stays(source, tmp_path):
    train.open_text(small(source), tmp_path)
    train.open_text(small(source), tmp_path)
    with pytest.raises(runtime.WorkdirError, match="as at the start of this run"):
        train.open_text(with_data(source, new_vocabulary=48), tmp_path)


def whole_batch(config, text):
    """Returns the first batch with its totals, as the loss receives it."""
    batch = train.training_batches(config, text)(0)._asdict()
    return batch | jax.tree.map(np.asarray, train.totals(batch))


def test_the_loss_is_the_sum_of_two_means_whatever_it_is_cut_into(source):
    """Compares with log-probabilities in float64, for the whole and for halves with different word counts."""
    config = small(source)
    text, model = config.data.open(), config.model.make()
    batch = whole_batch(config, text)
    params = small_folnet.draw(model)

    texts = batch["input_ids"], batch["token_type_ids"]
    out: Any = jax.jit(lambda params: model.apply({"params": params}, *texts))(params)
    words, sentences = (
        logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        for logits in (
            np.asarray(of, np.float64) for of in (out.prediction_logits, out.seq_relationship_logits)
        )
    )
    losses = [
        -words[row, place, label]
        for row in range(config.batch_size)
        for place, label in zip(batch["mlm_positions"][row], batch["mlm_labels"][row], strict=True)
        if label >= 0
    ]
    orders = [-sentences[row, label] for row, label in enumerate(batch["next_sentence_label"])]
    expected = np.mean(losses) + np.mean(orders)

    halves = [
        jax.tree.map(lambda leaf, rows=rows: leaf[rows] if leaf.ndim else leaf, batch)
        for rows in (slice(0, 4), slice(4, 8))
    ]
    counts = [(half["mlm_labels"] >= 0).sum() for half in halves]
    assert counts[0] != counts[1]
    of_part = jax.jit(train.make_loss(config, model))
    parts = [of_part(params, half, jax.random.key(0)) for half in halves]
    assert sum(float(part.numerator) for part in parts) == pytest.approx(expected, rel=1e-5)
    assert [float(part.denominator) for part in parts] == [0.5, 0.5]
    whole = jax.tree.map(lambda *values: sum(map(float, values)), *[part.metrics for part in parts])
    hits = sum(
        int(words[row, place].argmax() == label)
        for row in range(config.batch_size)
        for place, label in zip(batch["mlm_positions"][row], batch["mlm_labels"][row], strict=True)
        if label >= 0
    )
    right = (sentences.argmax(1) == batch["next_sentence_label"]).sum()
    expected = {
        "mlm_loss": (sum(losses), len(losses)),
        "mlm_accuracy": (hits, len(losses)),
        "sentence_loss": (sum(orders), config.batch_size),
        "sentence_accuracy": (right, config.batch_size),
    }
    assert set(whole) == set(expected)
    for name, pair in expected.items():
        assert whole[name] == pytest.approx(pair, rel=1e-5), name


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("drops", ["none", "hidden", "attention_probs"])
def test_the_model_gets_the_batch_and_dropout_in_training_alone(source, masks, drops):
    """Training passes its key if there is dropout of either kind; padding is masked only if asked for."""
    fields = {} if drops == "none" else {f"{drops}_dropout_prob": 0.3}
    config = dataclasses.replace(with_model(source, **fields), mask_padding=masks)
    seen = []

    class Watching:
        def apply(self, params, ids, segments, mask, deterministic, *, mlm_positions, rngs):
            seen.append((params, ids, segments, mask, deterministic, mlm_positions, rngs))
            return PreTrainingOutput(jnp.zeros((8, mlm_positions.shape[1], 104)), jnp.zeros((8, 2)))

    names = ("input_ids", "token_type_ids", "attention_mask", "mlm_positions", "mlm_labels")
    batch: dict[str, Any] = {name: np.full((8, 3), number) for number, name in enumerate(names)}
    batch |= {"next_sentence_label": np.zeros(8, int), "predictions": 24, "sentences": 8}
    model: Any = Watching()
    key = jax.random.key(7)
    jax.eval_shape(lambda: train.make_losses(config, model)("p", batch))
    jax.eval_shape(lambda: train.make_loss(config, model)("q", batch, key))
    for found, params, dropout in zip(seen, "pq", (False, drops != "none"), strict=True):
        wanted = {"params": params}, batch["input_ids"], batch["token_type_ids"]
        wanted += (batch["attention_mask"] if masks else None, not dropout, batch["mlm_positions"])
        wanted += ({"dropout": key} if dropout else None,)
        assert all(one is other or one == other for one, other in zip(found, wanted, strict=True))


def test_a_run_leaves_its_record_results_and_pictures(folnet_run):
    config, workdir, results = folnet_run
    assert list(results) == ["folnet", "baseline"]
    files = {path.name for path in workdir.iterdir() if not path.name.startswith(".")}
    assert files == {
        "config.json", "metrics.jsonl", "summary.json", "checkpoints", "baseline",
        "loss_by_steps.png", "loss_by_seconds.png", "filled.png",
    }  # fmt: skip
    rows = runtime.metrics.read(workdir / "metrics.jsonl")
    assert [row["step"] for row in rows] == [2, 4]
    assert {
        "mlm_loss",
        "mlm_accuracy",
        "sentence_accuracy",
        "eval/mlm_loss",
        "eval/sentence_accuracy",
    } <= set(rows[-1])
    for row in rows:
        assert row["loss"] == pytest.approx(row["mlm_loss"] + row["sentence_loss"], rel=0.02)
    for result in results.values():
        assert result.results["parameters"] == sum(leaf.size for leaf in jax.tree.leaves(result.params))
        assert len(result.results["filled"]) == config.blanks
        assert result.step == config.steps
    # Both models have the same blanks.
    asked = [[(e["before"], e["word"], e["after"]) for e in r.results["filled"]] for r in results.values()]
    assert asked[0] == asked[1]


def test_what_a_run_is_fitted_with(source, tmp_path, monkeypatch):
    """The layout, totals of whole batches, and each process's rows."""
    config = small(source, seed=3)
    text = config.data.open()
    monkeypatch.setattr(train.runtime, "fit", lambda config, **given: (config, given))
    found: Any = train.train(config, text, tmp_path, "pmap")
    assert found[0] is config
    given = found[1]
    assert (given["parallel"], given["workdir"]) == ("pmap", tmp_path)
    assert (given["name"], given["totals"]) == ("FOLNet", train.totals)
    batch = train.training_batches(config, text)(3)._asdict()
    chex.assert_trees_all_equal(given["batches"](3), batch)
    first = train.training_batches(dataclasses.replace(config, seed=0), text)(3)
    assert not np.array_equal(first.input_ids, batch["input_ids"])
    monkeypatch.setattr(train.jax, "process_count", lambda: 2)
    monkeypatch.setattr(train.jax, "process_index", lambda: 1)
    half: Any = train.train(config, text, tmp_path)
    chex.assert_trees_all_equal(half[1]["batches"](3), jax.tree.map(lambda leaf: leaf[4:], batch))
    totals = train.totals(batch)
    assert (float(totals["predictions"]), float(totals["sentences"])) == (
        (batch["mlm_labels"] >= 0).sum(),
        (batch["next_sentence_label"] >= 0).sum(),
    )


def test_a_session_that_is_over_trains_no_baseline_and_draws_nothing(source, tmp_path, monkeypatch):
    """If the first run is over the baseline follows, also when its time has ended it."""
    asked, drawn, clock = [], [], [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr(train.figures, "draw", lambda *arguments: drawn.append(arguments))
    for steps, fields, both in (
        (2, {"session_seconds": 9.0}, False),
        (4, {"session_seconds": 9.0}, True),
        (2, {"session_seconds": 9.0, "max_seconds": 3.0}, True),
        (4, {}, True),
    ):
        result: Any = types.SimpleNamespace(step=steps, train_seconds=3.0)

        def fake(config, text, workdir, parallel, result=result):
            asked.append((config, workdir, parallel))
            clock[0] += 4
            return result

        monkeypatch.setattr(train, "train", fake)
        config = small(source, baseline="transformer", **fields)
        found = train.main(config, workdir=tmp_path / "run", parallel="pmap")
        assert found == ({"folnet": result, "baseline": result} if both else {"folnet": result})
        assert len(drawn) == both
        if both:
            baseline = asked[0][0].for_baseline(3.0)
            assert drawn.pop()[1:] == ({"folnet": asked[0][0], "baseline": baseline}, found)
            if config.session_seconds:
                baseline = dataclasses.replace(baseline, session_seconds=5.0)
            assert asked[1] == (baseline, tmp_path / "run" / "baseline", "pmap")
        assert asked[0] == (config.resolved(), tmp_path / "run", "pmap")
        asked.clear()


def test_a_finished_run_returns_at_once(folnet_run, monkeypatch):
    config, workdir, results = folnet_run
    monkeypatch.setattr(measures, "lines", None)  # calling it would fail
    again = train.main(config, workdir=workdir)
    assert {name: result.summary for name, result in again.items()} == json.loads(
        json.dumps({name: result.summary for name, result in results.items()})
    )


@pytest.mark.slow
def test_a_stopped_run_continues_with_the_same_bits(source, tmp_path):
    """Includes dropout, masks and moments; the steps cannot be raised if the rate depends on them."""
    config = with_model(source, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    config = dataclasses.replace(config, schedule="linear", schedule_steps=4)
    straight = train.main(config, workdir=None)["folnet"]
    train.main(dataclasses.replace(config, steps=2), workdir=tmp_path)
    again = train.main(config, workdir=tmp_path)["folnet"]
    assert again.step == straight.step == 4
    chex.assert_trees_all_equal(straight.params, again.params)
    with pytest.raises(runtime.WorkdirError, match="schedule_steps: got 6, expected 4"):
        train.main(dataclasses.replace(config, steps=6, schedule_steps=0), workdir=tmp_path)


@pytest.mark.slow
def test_a_batch_in_parts_is_the_batch(source):
    whole, parts = (
        train.main(small(source, accumulate=accumulate), workdir=None)["folnet"] for accumulate in (1, 4)
    )
    chex.assert_trees_all_close(whole.params, parts.params, rtol=2e-4, atol=2e-6)
    assert parts.metrics["loss"] == pytest.approx(whole.metrics["loss"], rel=1e-5)


@pytest.mark.slow
def test_a_small_model_learns_the_text(source):
    """Only nouns and verbs vary in the text, so the lowest loss is far below the entropy."""
    config = small(source, steps=600, log_every=100, checkpoint_every=600, eval_every=300, lr=1e-2)
    result = train.main(config, workdir=None)["folnet"]
    assert result.metrics["eval/mlm_loss"] < 0.6 * result.results["unigram_entropy"]
