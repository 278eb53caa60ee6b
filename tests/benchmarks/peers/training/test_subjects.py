"""Our side of the training steps: the papers' sizes, and steps that train."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from benchmarks.peers.training import measuring, subjects
from experiments import boxworld, folnet_pretrain, llrnn, mathematics
from experiments.runtime import training

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_the_papers_models_and_optimizers():
    """Only the batch, the dtype, dropout and rematerialization differ from the presets."""
    sizes = subjects.PAPERS
    assert sizes.agents == boxworld.get_config("paper")
    assert sizes.ntm == llrnn.get_config("authors_copy")
    for config, preset, of_model in (
        (sizes.transformer, mathematics.get_config("paper"), {"dtype"}),
        (
            sizes.folnet,
            folnet_pretrain.get_config("base_16gb"),
            {"dtype", "remat", "hidden_dropout_prob", "attention_probs_dropout_prob"},
        ),
    ):
        fields, expected = vars(config), vars(preset)
        different = {name for name in fields if fields[name] != expected[name]}
        assert different - {"accumulate", "data"} == {"batch_size", "model"}
        model, paper = vars(config.model), vars(preset.model)
        assert {name for name in model if model[name] != paper[name]} == of_model


def test_both_sizes_have_the_same_subjects():
    small, papers = (subjects.subjects(sizes) for sizes in subjects.SIZES.values())
    assert list(small) == list(papers)
    assert len(small) == 5


def test_batches_of_questions_differ_and_have_padding():
    subject = subjects.transformer(subjects.SMALL.transformer)
    sources = [batch["source"].tobytes() for batch in subject.batches]
    assert len(set(sources)) == subjects.BATCHES
    assert any((batch["source"] == 0).any() for batch in subject.batches)
    assert all((batch["target"][:, 1] != 0).all() for batch in subject.batches)


def test_our_program_makes_the_steps_of_a_run():
    """On a regression: losses before each step, parameters by path, and operations of both products."""
    batches = tuple({"x": np.full((4, 3), number, np.float32)} for number in (1, 2))

    def loss(params, batch, key):
        return training.Sums(jnp.sum(jnp.square(batch["x"] @ params["layer"]["kernel"])), len(batch["x"]))

    task = training.Task(
        0, 4, lambda key: {"layer": {"kernel": jnp.ones((3, 1))}}, loss, optax.sgd(0.05), accumulate=2
    )
    program = subjects.fitted(task, batches)()
    assert program.params()["layer/kernel"].tolist() == [[1]] * 3
    found = measuring.course(program, program.params(), batches)
    assert found.losses == pytest.approx([9.0, 4 * 2.1**2])
    assert found.change["layer/kernel"].tolist() == [[pytest.approx(-0.3)]] * 3
    assert program.facts["parameters"] == 3
    assert program.facts["parts"] == 2
    assert program.facts["operations"] == 2 * (2 * 4 * 3)
    assert program.facts["peak_bytes"] > 0


def test_a_nudged_program_begins_again_a_rounding_error_away():
    batches = ({"x": np.ones((4, 3), np.float32)},) * 2
    task = training.Task(
        0,
        4,
        lambda key: {"kernel": jnp.ones((3, 1))},
        lambda params, batch, key: training.Sums(jnp.sum(batch["x"] @ params["kernel"]), len(batch["x"])),
        optax.sgd(0.05),
    )
    program = subjects.fitted(task, batches)()
    found = measuring.course(program, program.params(), batches)
    program.nudge(0)
    eps = float(np.finfo(np.float32).eps)
    assert {abs(float(x)) for x in program.params()["kernel"].ravel() - 1} <= {eps, eps / 2}
    again = measuring.course(program, program.params(), batches)
    assert again.losses == pytest.approx(found.losses, rel=1e-5)


def test_batches_of_sequences_differ_and_have_a_mask():
    batches = subjects.ntm(subjects.SMALL.ntm).batches
    assert len({batch["tokens"].tobytes() for batch in batches}) == subjects.BATCHES
    assert {batch["mask"].shape[0] for batch in batches} == {3}


@pytest.mark.slow
def test_the_steps_of_a_recurrent_network():
    """The first loss is that of the initial parameters, and the state of one program is not another's."""
    subject = subjects.ntm(subjects.SMALL.ntm)
    program = subject.start()
    start = program.params()
    found = measuring.course(program, start, subject.batches[:3])
    again = measuring.course(program, program.params(), subject.batches[:1])
    assert found.losses[0] > again.losses[0]
    assert max(np.abs(change).max() for change in found.change.values()) > 0
    assert program.facts["parameters"] == sum(array.size for array in start.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["simplicial", "relational"])
def test_the_updates_of_an_agent(kind):
    """Episodes are truncated in some batches, and each start begins with the same weights."""
    subject = subjects.agent(subjects.changed(subjects.SMALL.agents, {"agent.kind": kind}))
    assert any(batch["truncated"].any() for batch in subject.batches)
    assert len({batch["observation"].tobytes() for batch in subject.batches}) == subjects.BATCHES
    program = subject.start()
    start = program.params()
    assert np.isfinite(measuring.course(program, start, subject.batches[:2]).losses).all()
    fresh = subject.start().params()
    assert all((fresh[path] == start[path]).all() for path in start)
