"""The probe and the clusters on vectors that are known to hold a role, or nothing."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.mathematics import expressions, probing, roles_claims, syntax, train
from experiments.runtime import FitResult
from experiments.runtime.claims import Run
from tests.experiments.mathematics.small import MODEL, small
from tests.tp_transformer.small import draw, quickly
from tp_transformer import mathematics
from tp_transformer.model import encoder_attention

pytestmark = pytest.mark.usefixtures("compiled_quickly")

QUESTIONS = ["Calculate 12 - (3 - 4).", "What is 5/(6/78)?", "Evaluate (1 - 20) + 3.", "What is 9*(8 - 7)?"]


def test_information_is_the_share_of_the_entropy():
    labels = np.array([0, 0, 1, 1, 2, 2, 2, 2])
    assert probing.information(2 - labels, labels) == pytest.approx(1)
    assert probing.information(np.zeros(8, int), labels) == pytest.approx(0)
    assert probing.information(np.array([0, 0, 0, 0, 1, 1, 1, 1]), labels) == pytest.approx(1 / 1.5)
    assert probing.information(np.array([0, 1]), np.array([2, 2])) == 0
    assert probing.information(2 * labels, 2 * labels) == pytest.approx(1)  # not all numbers occur


@pytest.mark.parametrize("name", ["tp_transformer", "transformer"])
def test_vectors_are_roles_or_states_at_the_characters(name):
    """Without the start symbol; of the last layer, all heads side by side."""
    model = dataclasses.replace(MODEL, name=name, num_layers=2).make()
    params = draw(model)
    found = probing.vectors(model, params, QUESTIONS)
    source = jnp.asarray(mathematics.DEFAULT.encode_batch(QUESTIONS))
    first = dataclasses.replace(MODEL, name=name, num_layers=1).make()  # whose cells the second layer norms
    cells = quickly(lambda p: first.apply({"params": p}, source, method="encode"))(params)
    centred = cells - np.mean(cells, axis=-1, keepdims=True)
    norm = params["encoder_1"]["attention_norm"]
    want = (
        centred / np.std(cells, axis=-1, keepdims=True) * norm["scale"][None, None] + norm["bias"][None, None]
    )
    states = probing.vectors(model, params, QUESTIONS, states=True)
    np.testing.assert_allclose(states, np.asarray(want)[:, 1:], rtol=1e-4, atol=1e-5)
    if name == "tp_transformer":
        roles = quickly(lambda p: encoder_attention(model, {"params": p}, source)[-1].roles)(params)
        want = np.concatenate([np.asarray(roles)[:, :, head] for head in range(2)], axis=-1)
    np.testing.assert_allclose(found, np.asarray(want)[:, 1:], rtol=1e-4, atol=1e-5)
    assert found.shape[1] == max(map(len, QUESTIONS)) + 1


def test_what_is_read_is_at_digits_of_other_questions(monkeypatch):
    """Vectors that are the labels give everything, and are fitted to every second question."""
    questions = [
        pair.question for pair in mathematics.draw("interpolate", "arithmetic__mixed", 60, seed=4)
    ] + ["What is seven?"]
    assert len(set(questions)) == 61

    def labelled(model, params, given, *, states):
        assert not states
        assert given == questions[:-1]
        states = np.zeros((60, 100, 6))
        for row, question in zip(states, given, strict=True):
            found = syntax.parse(question)
            for column, name in enumerate(probing.READ):
                row[: len(question), column] = np.asarray(getattr(found, name))
        return states

    seeds, cluster = [], probing.roles.cluster

    def clustered(vectors, k, *, seed):
        seeds.append(seed)
        return cluster(vectors, k, seed=seed)

    monkeypatch.setattr(probing, "vectors", labelled)
    monkeypatch.setattr(probing.roles, "cluster", clustered)
    found = probing.read(MODEL.make(), None, questions, k=12, seed=3)
    assert seeds == [3]
    assert found["probe/operand"] == found["probe/inverse"] == pytest.approx(1)
    assert found["probe"] == np.mean([found[f"probe/{name}"] for name in probing.READ])
    assert found["clusters"] == np.mean([found[f"clusters/{name}"] for name in probing.READ])
    assert found["clusters/depth"] > 0.5
    for count in (0, 1):
        with pytest.raises(
            ValueError, match=f"questions: got {count} with an expression, expected at least 2"
        ):
            probing.read(MODEL.make(), None, ["What is seven?", *questions[:count]])


def test_controls_see_symbols_and_positions():
    """A role that they determine is read without error, one that they do not is not."""
    questions = expressions_of("interpolate", test=100)
    found = probing.controls(questions)
    assert found["neighbours/probe/place"] == pytest.approx(1)  # of two digits, the first is followed by one
    assert found["symbol_position/probe/place"] < 0.8
    assert found["symbol_position/probe/inverse"] < 0.8
    assert found["neighbours/probe/operator"] < 0.6  # of two, in a question with two operators
    assert {f"{control}/probe/{name}" for control in probing.CONTROLS for name in probing.READ} < set(found)
    assert found["neighbours/probe"] == np.mean([found[f"neighbours/probe/{name}"] for name in probing.READ])
    with pytest.raises(ValueError, match="questions: got 0 with an expression, expected at least 2"):
        probing.controls(["What is seven?"])


def expressions_of(split, **sizes):
    """Questions of small expressions."""
    source = expressions.Expressions(**{"train": 0, "test": 0, "seed": 2, **sizes})
    return [pair.question for name in expressions.MODULES for pair in source.questions(split, name)]


def test_controls_are_fitted_to_what_a_question_shows(monkeypatch):
    """The symbol, its neighbours and the position of a digit, one-hot and in this order."""
    seen = []
    monkeypatch.setattr(probing, "_probed", lambda train, test: seen.append(train[0]) or {})
    probing.controls(["Let 1+2", "Let 3+4"])
    size, symbol = mathematics.DEFAULT.size, mathematics.DEFAULT.encode
    assert [x.shape for x in seen] == [(2, 9 + size), (2, 9 + 3 * size), (2, 9 + 7 * size)]
    for digit, (at, around) in enumerate(zip((5, 7), (" 1+", "+2"), strict=True)):
        assert np.flatnonzero(seen[0][digit]).tolist() == [at, 9 + symbol(around[1])[1]]
        after = mathematics.END if digit else symbol("+")[1]
        shown = [symbol(around[0])[1], symbol(around[1])[1], after]
        assert np.flatnonzero(seen[1][digit]).tolist() == [
            at,
            *(9 + n * size + s for n, s in enumerate(shown)),
        ]


def test_probed_questions_are_different_and_not_trained_on():
    """Those of the declared runs."""
    config: Any = roles_claims.ROLES.models[0].config
    asked = roles_claims.questions_of(config)
    assert len(set(asked)) == len(asked) == 900
    assert not set(asked) & set(expressions_of("train", train=20_000, test=300))
    (data,) = {dataclasses.astuple(model.config.data) for model in roles_claims.ROLES.models}  # pyrefly: ignore
    assert data == dataclasses.astuple(config.data)
    assert (config.data.train, config.data.test, config.data.seed) == (20_000, 300, 2)


def test_what_is_measured_of_roles(monkeypatch, tmp_path):
    """The trained parameters, the initialization of the run's seed, their difference, and the controls."""
    given = []

    def read(model, params, questions, *, states=False):
        if states:
            return {"probe": 0.625, "clusters": 0.25}
        given.append((params, len(questions)))
        return {"probe": 0.75, "clusters": 0.5} if params == "trained" else {"probe": 0.5, "clusters": 0.125}

    monkeypatch.setattr(probing, "read", read)
    monkeypatch.setattr(probing, "controls", lambda questions: {"neighbours/probe": len(questions)})
    monkeypatch.setattr(roles_claims, "untrained", lambda config: config.seed)
    config: Any = roles_claims.ROLES.models[0].config
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, train=3, test=3))
    results = {"interpolate": {"average": 0.25}}
    result = FitResult(
        state=None, params="trained", summary={}, step=1, metrics={}, results=results, train_seconds=1.0
    )
    assert roles_claims.measure(Run(result, config, tmp_path)) == {
        "probe": 0.75, "clusters": 0.5, "untrained/probe": 0.5, "untrained/clusters": 0.125,
        "gain/probe": 0.25, "gain/clusters": 0.375, "states/probe": 0.625, "states/clusters": 0.25,
        "neighbours/probe": 9, "exact_match": 0.25,
    }  # fmt: skip
    assert given == [("trained", 9), (config.seed, 9)]


@pytest.mark.slow
def test_an_untrained_model_is_where_its_run_begins():
    """A run at a rate of 0 ends there."""
    config = small(seed=3, lr=0.0, steps=2)
    result = train.main(config, workdir=None)["tp_transformer"]
    jax.tree.map(np.testing.assert_array_equal, roles_claims.untrained(config), result.params)


def test_what_was_declared_about_roles():
    ours, other = roles_claims.ROLES.models
    assert (ours.name, other.name) == ("TP-Transformer", "Transformer")
    assert ours.config.data == other.config.data  # pyrefly: ignore
    tests = {claim.id: claim.tests for claim in roles_claims.ROLES.claims}
    assert tests["mathematics.roles.probe"] == tests["mathematics.roles.clusters"] == ("paired",)
    values = {claim.value for claim in roles_claims.ROLES.claims if not claim.tests}
    assert values > {f"{control}/probe" for control in probing.CONTROLS} | {"probe/operator", "probe/inverse"}
    roles_claims.ROLES.check()
    assert (roles_claims.ROLES.seeds, len(roles_claims.ROLES.models)) == ((6, 7, 8), 2)
