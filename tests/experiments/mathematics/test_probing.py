"""The probe and the clusters on vectors that are known to hold a role, or nothing."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.mathematics import probing, roles_claims, syntax, train
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
    if name == "transformer":
        want = quickly(lambda p: model.apply({"params": p}, source, method="encode"))(params)
    else:
        roles = quickly(lambda p: encoder_attention(model, {"params": p}, source)[-1].roles)(params)
        want = np.concatenate([np.asarray(roles)[:, :, head] for head in range(2)], axis=-1)
    np.testing.assert_allclose(found, np.asarray(want)[:, 1:], rtol=1e-4, atol=1e-5)
    assert found.shape[1] == max(map(len, QUESTIONS)) + 1


def test_what_is_read_is_at_digits_of_other_questions(monkeypatch):
    """Vectors that are the labels give everything, and are fitted to every second question."""
    questions = [
        pair.question for pair in mathematics.draw("interpolate", "arithmetic__mixed", 60, seed=4)
    ] + ["What is seven?"]

    def labelled(model, params, given):
        assert given == questions[:-1]
        states = np.zeros((60, 100, 5))
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


def test_what_is_measured_of_roles(monkeypatch, tmp_path):
    """The trained parameters, the initialization of the run's seed, and their difference."""
    given = []

    def read(model, params, questions):
        given.append((params, len(questions)))
        return {"probe": 0.75, "clusters": 0.5} if params == "trained" else {"probe": 0.5, "clusters": 0.125}

    monkeypatch.setattr(probing, "read", read)
    monkeypatch.setattr(roles_claims, "QUESTIONS", 3)
    monkeypatch.setattr(roles_claims, "untrained", lambda config: config.seed)
    ours = roles_claims.ROLES.models[0]
    results = {"interpolate": {"average": 0.25}}
    result = FitResult(
        state=None, params="trained", summary={}, step=1, metrics={}, results=results, train_seconds=1.0
    )
    assert roles_claims.measure(Run(result, ours.config, tmp_path)) == {
        "probe": 0.75, "clusters": 0.5, "untrained/probe": 0.5, "untrained/clusters": 0.125,
        "gain/probe": 0.25, "gain/clusters": 0.375, "exact_match": 0.25,
    }  # fmt: skip
    assert given == [("trained", 9), (ours.config.seed, 9)]


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
    assert (roles_claims.ROLES.seeds, len(roles_claims.ROLES.models)) == ((3, 4, 5), 2)
