"""Baselines that answer for pairs of people: what they see, their loops, their sizes."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from flax import linen as nn

from experiments import baselines
from experiments.kinship import load, measures, pairs, parts, train
from experiments.kinship.config import Config
from experiments.kinship.parts import PairConfig
from experiments.kinship.zoo import EXAMPLE
from folnet import kinship
from tests.experiments.kinship.small import small
from tests.folnet import small as small_folnet

pytestmark = pytest.mark.usefixtures("compiled_quickly")

LOOPED = PairConfig(read=True, people="named", supervised=True, loops=2)
PLACES = (parts.T5, parts.RELATION_AWARE, parts.RGCN, parts.EDGE_TRANSFORMER)
"""One of each way to take facts."""
GRAPHS = tuple(name for name in parts.ENCODERS if name not in parts.WITHOUT_RELATIONS)


def looped(name: str, people: Any = "named", **fields: Any) -> Config:
    """Returns `small` with a baseline that answers for pairs."""
    of_pairs = dataclasses.replace(LOOPED, people=people, supervised=people != "marked", **fields)
    return small(model=name, match="", pairs=of_pairs)


def made(config: Config) -> tuple[Any, Any, dict[str, Any]]:
    """Returns a model, drawn parameters and a batch."""
    model, batch = config.make(config.model), train.make_batches(config)(0)
    shapes = jax.eval_shape(train.make_init(model), jax.random.key(0))
    return model, small_folnet.draw_like(shapes), batch


_COMPILED: dict[str, Any] = {}


def logits(model: Any, params: Any, batch: Any, **loops: Any) -> list[np.ndarray]:
    """Returns those of every loop; equal models are compiled once for all tests."""
    if (key := f"{model} {loops}") not in _COMPILED:
        _COMPILED[key] = small_folnet.quickly(lambda p, of: measures.apply(model, p, of, **loops))
    names = ("input_ids", "token_type_ids", "attention_mask", "relation_ids")
    inputs = {name: batch[name] for name in names if name in batch}
    return [np.asarray(of_loop) for of_loop in _COMPILED[key](params, inputs)]


def between_people(array: np.ndarray, batch: Any, row: int) -> np.ndarray:
    """The part of a row's [N, N, ...] that is about people."""
    size = int((np.asarray(batch["pairs"][row]) >= 0).any(axis=1).sum()) + 1
    return array[row, 1:size, 1:size]


def test_an_rgcn_has_all_its_layers_in_every_loop():
    """Two for each of three loops are six of one loop."""
    found = []
    for layers, loops in ((2, 3), (6, 1)):
        config = looped(parts.RGCN, loops=loops)
        config.sizes.num_hidden_layers = layers
        found.append(jax.eval_shape(train.make_init(config.make(config.model)), jax.random.key(0)))
    assert found[0]["encoder"] == found[1]["encoder"]


@pytest.mark.parametrize("name", PLACES)
def test_logits_are_of_all_pairs_and_loops_ahead_are_not_returned(name):
    model, params, batch = made(looped(name))
    every = logits(model, params, batch)
    assert {of_loop.shape for of_loop in every} == {(*batch["pairs"].shape, len(kinship.RELATIONS) + 1)}
    if name == parts.RGCN:  # its layers are its loops
        assert len(every) == 1
        return
    (later,) = logits(model, params, batch, num_loops=1, ahead=1)
    assert len(every) == 2
    np.testing.assert_allclose(later, every[1], atol=1e-5)
    assert np.abs(every[1] - every[0]).max() > 1e-3


@pytest.mark.parametrize("name", PLACES)
def test_renumbering_people_renumbers_the_answers(name):
    """A graph tells people apart by names and facts alone; a list also has positions."""
    model, params, batch = made(looped(name))
    order = np.r_[0, 1 + np.random.default_rng(0).permutation(batch["pairs"].shape[1] - 1)]
    if name in parts.WITHOUT_RELATIONS:
        order = np.r_[order, len(order) : batch["input_ids"].shape[1]]
    moved = {key: np.asarray(batch[key])[:, order] for key in ("input_ids", "attention_mask")}
    if "relation_ids" in batch:
        moved["relation_ids"] = np.asarray(batch["relation_ids"])[:, order][:, :, order]
    found, want = (logits(model, params, {**batch, **change})[-1] for change in (moved, {}))
    people = order[: batch["pairs"].shape[1]]
    same = np.allclose(found, want[:, people][:, :, people], atol=1e-4)
    assert same == (name in GRAPHS)


@pytest.mark.parametrize("name", PLACES)
def test_facts_are_seen(name):
    """Another relation of the first fact changes answers; what padding holds does not."""
    model, params, batch = made(looped(name))
    ids = {key: np.array(batch[key]) for key in ("input_ids", "relation_ids") if key in batch}
    padding = ~batch["attention_mask"]
    assert padding.any()
    blank = {**batch, "input_ids": np.where(padding, kinship.arrays.PERSON, ids["input_ids"])}
    if name in GRAPHS:
        _, x, y = np.argwhere(ids["relation_ids"][:1] >= 0)[0]
        ids["relation_ids"][0, x, y] = (ids["relation_ids"][0, x, y] + 1) % kinship.NUM_EDGES
    else:
        first = kinship.VOCAB_SIZE + batch["pairs"].shape[1] - 1
        place = np.flatnonzero(ids["input_ids"][0] >= first)[0]
        ids["input_ids"][0, place] = first + (ids["input_ids"][0, place] - first + 1) % kinship.NUM_EDGES
    changed, blanked, plain = (logits(model, params, of)[-1] for of in ({**batch, **ids}, blank, batch))
    assert np.abs(changed[0] - plain[0]).max() > 1e-3
    np.testing.assert_allclose(changed[1:], plain[1:], atol=1e-5)
    for row in range(len(plain)):
        got, want = (between_people(array, batch, row) for array in (blanked, plain))
        np.testing.assert_allclose(got, want, atol=1e-4)


def test_a_fact_is_another_relation_the_other_way_round():
    """Edges from y to x have ids of their own, after those from x to y."""
    model, params, batch = made(looped(parts.EDGE_TRANSFORMER))
    seen = []

    def record(call, args, kwargs, context):
        if context.module.name == "edges" and context.method_name == "__call__":
            seen.append(args[0])
        return call(*args, **kwargs)

    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "relation_ids")}
    with nn.intercept_methods(record):
        measures.apply(model, params, inputs)
    ids = np.asarray(batch["relation_ids"])
    turned = np.swapaxes(ids, 1, 2)
    expected = np.where(ids >= 0, ids, np.where(turned >= 0, turned + model.config.relation_vocab_size, -1))
    np.testing.assert_array_equal(seen[0], expected)


class Turned(kinship.Kinship):
    """Problems with the question the other way round."""

    def __getitem__(self, index):
        problem = super().__getitem__(index)
        return dataclasses.replace(problem, query=problem.query[::-1])


@pytest.mark.parametrize(("name", "people"), [(name, "marked") for name in PLACES] + [(parts.T5, "named")])
def test_marks_say_what_is_asked(name, people):
    """With another question about the same facts, other answers; without marks, the same."""
    config = looped(name, people)
    model, params, _ = made(looped(name))
    assert config.make(name).config == model.config
    sources = (kind(0, (2, 3)) for kind in (kinship.Kinship, Turned))
    want, found = (
        logits(model, params, config.reader(name, source)(source, range(4)))[-1] for source in sources
    )
    assert np.allclose(found, want, atol=1e-5) == (people == "named")


@pytest.mark.parametrize("name", [parts.RGCN, "jm.atp"])
def test_models_are_matched_in_parameters(name):
    """`test_claims` has the others."""
    config = dataclasses.replace(looped(name), match="jmc.atp")
    target = dataclasses.replace(looped("jmc.atp"), match="").make("jmc.atp")
    count = baselines.count(config.make(name), EXAMPLE)
    assert abs(count - baselines.count(target, EXAMPLE)) <= 0.02 * count


def test_only_bert_normalizes_after_each_layer_and_t5_has_a_bias_for_positions():
    """Pre-LN has one more normalization, at the end."""
    for name in parts.WITHOUT_RELATIONS:
        _, params, batch = made(looped(name))
        encoder = params["encoder"]
        assert ("norm" in encoder.pop("stack")) == (name != parts.BERT)
        length = batch["input_ids"].shape[1]
        wanted = {"distances": (32, 2)} if name == parts.T5 else {"positions": (length, 8)}
        assert {key: leaf.shape for key, leaf in encoder.items()} == wanted


def test_an_exported_function_gives_the_models_answers():
    """The slow test below does the same for a run."""
    model, params, batch = made(looped(parts.T5))
    exportable = load.of_kinship(looped(parts.T5, ahead=2), params)
    function = small_folnet.quickly(exportable.function)
    found = function(params, {key: batch[key] for key in exportable.inputs})["logits"]
    rows, (x, y) = np.arange(4), batch["query"].T
    want = logits(model, params, batch)[-1][rows, x, y][:, pairs.ASKED]
    np.testing.assert_allclose(found, want, atol=1e-5)


@pytest.mark.slow
def test_a_run_and_its_export(tmp_path):
    config = looped(parts.BERT_PRE, ahead=2)
    result = train.main(config, workdir=tmp_path)[parts.BERT_PRE]
    assert 0 <= result.results["metric"]["value"] <= 1
    exportable = load.open_model(tmp_path)
    batch = train.make_batches(config)(0)
    inputs = {key: batch[key] for key in exportable.inputs}
    found = exportable.function(exportable.params, inputs)["logits"]
    want = measures.logits(config.make(parts.BERT_PRE), result.params, batch)
    np.testing.assert_allclose(found, want, atol=1e-5)


def test_all_parameters_learn():
    """After one loop ahead no parameter is without a gradient, the tables of tokens included."""
    for name, loops in {parts.T5: 1, parts.RGCN: 2, "j.a": 2}.items():
        config = looped(name, ahead=2, loops=loops, injection=0.5)
        model, params, batch = made(config)
        batch = batch | {"ahead": np.ones(4, np.int32)}
        loss = train.make_loss(config, model)
        gradient = jax.grad(lambda p, b=batch, f=loss: f(p, b, None).numerator)
        found = jax.device_get(small_folnet.quickly(gradient)(params))
        still = {
            jax.tree_util.keystr(path)
            for path, leaf in jax.tree_util.tree_leaves_with_path(found)
            if not np.any(leaf)
        }
        expected = {"['segments']['embedding']"} if name in GRAPHS else set()
        assert still == expected, name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data.inverses": True}, r"data\.inverses: got True, expected False with the model 'rgcn'"),
        ({"sizes.hidden_dropout_prob": 0.1}, r"sizes\.hidden_dropout_prob: got 0\.1, expected 0\.0"),
        ({"sizes.dtype": "bfloat16"}, r"sizes\.dtype: got 'bfloat16', expected 'float32'"),
    ],
)
def test_what_a_baseline_has_not_is_refused(change, message):
    config = looped(parts.RGCN)
    for name, value in change.items():
        part, field = name.split(".")
        setattr(getattr(config, part), field, value)
    with pytest.raises(ValueError, match=message):
        config.validate()
