"""The fine-tuned model: what it takes from a checkpoint, and errors for unsuitable ones."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from safetensors import numpy as safetensors_numpy

from experiments.folnet_finetune import model
from experiments.folnet_finetune.config import get_config
from experiments.folnet_finetune.train import make_loss
from experiments.runtime.training import Task, initial_state, run_keys
from folnet import (
    FOLNet,
    FOLNetForQuestionAnswering,
    FOLNetForSequenceClassification,
    parameters,
    pretrained,
)
from tests.experiments.folnet_finetune import small as small_finetune

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return small_finetune.checkpoint(tmp_path_factory.mktemp("checkpoint"))


def small(checkpoint, **fields):
    return small_finetune.small(checkpoint, checkpoint, **fields)


@pytest.mark.parametrize(
    ("task", "cls", "labels", "kind"),
    [
        ("mnli", FOLNetForSequenceClassification, 3, "single_label_classification"),
        ("stsb", FOLNetForSequenceClassification, 1, "regression"),
        ("clutrr23", FOLNetForSequenceClassification, 21, "single_label_classification"),
        ("squad2", FOLNetForQuestionAnswering, 2, None),
    ],
)
def test_each_task_has_its_head(checkpoint, task, cls, labels, kind):
    """Sizes come from the checkpoint; dropout and dtypes come from the config."""
    config = small(checkpoint, task=task, length=200)
    config.model = dataclasses.replace(config.model, hidden_dropout_prob=0.3, dtype="bfloat16")
    made = model.make(config)
    assert type(made) is cls
    assert (made.config.num_labels, made.config.problem_type) == (labels, kind)
    assert (made.config.hidden_size, made.config.operators) == (16, "j.")
    assert (made.config.hidden_dropout_prob, made.config.dtype) == (0.3, "bfloat16")


@pytest.mark.slow
def test_the_papers_models_can_be_traced():
    """FOLNet Base with either head has the documented number of parameters, and its loss can be traced."""
    for task in ("rte", "squad2"):
        _check_trace(task)


def _check_trace(task):
    config = dataclasses.replace(get_config(task), checkpoint="")
    made = model.make(config)
    params = jax.eval_shape(model.make_init(made), jax.random.key(0))
    head = 2 * (768 + 1)  # two classes, or where an answer begins and ends
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 138_381_952 + head
    ids = jax.ShapeDtypeStruct((2, config.tokens), jnp.int32)
    batch = {"input_ids": ids, "token_type_ids": ids, "weight": jax.ShapeDtypeStruct((2,), jnp.float32)}
    batch |= dict.fromkeys(("label", "start", "end"), jax.ShapeDtypeStruct((2,), jnp.int32))
    sums = jax.eval_shape(make_loss(config, made), params, batch, jax.random.key(0))
    assert (sums.numerator.shape, sums.numerator.dtype) == ((), jnp.float32)


def test_it_begins_with_the_checkpoints_encoder(tmp_path):
    """The encoder may have been saved alone. The head is drawn as for a run from scratch with the seed."""
    checkpoint = small_finetune.checkpoint(tmp_path, FOLNet)
    config = small(checkpoint)
    made = model.make(config)
    assert model.misfits(config) == []
    params = parameters.flatten(model.begin(config, made))
    kept = safetensors_numpy.load_file(checkpoint / "model.safetensors")
    encoder = {name.removeprefix("folnet."): kept[name] for name in kept}
    names = [name for name in params if name.startswith("folnet.")]
    assert len(names) > 10
    for name in names:
        np.testing.assert_array_equal(params[name], encoder[name.removeprefix("folnet.")])
    heads = {name: value for name, value in params.items() if name not in names}
    assert set(heads) == {"classifier.weight", "classifier.bias"}
    other = model.begin(dataclasses.replace(config, seed=1), made)["classifier"]["weight"]
    assert (np.asarray(heads["classifier.weight"]) != np.asarray(other)).all()
    scratch = Task(config.seed, 2, model.make_init(made), make_loss(config, made), optax.identity())
    drawn = jax.jit(lambda key: initial_state(scratch, key).params["classifier"])(run_keys(config.seed)[0])
    np.testing.assert_allclose(heads["classifier.weight"], drawn["weight"], rtol=1e-6)
    assert not np.asarray(heads["classifier.bias"]).any()


def test_an_existing_head_is_not_used(checkpoint, tmp_path):
    """A model fine-tuned on three classes can initialize one with two."""
    config = small(checkpoint, task="mnli")
    made = model.make(config)
    table = {name: np.ones(shape, np.float32) for name, shape in parameters.shapes(made).items()}
    made.save_pretrained(tmp_path, parameters.nest(table))
    config = small(tmp_path)
    assert model.misfits(config) == []
    params = model.begin(config, model.make(config))
    assert params["classifier"]["weight"].shape == (16, 2)
    assert float(np.abs(params["classifier"]["weight"]).max()) < 0.2


def test_unsuitable_checkpoints_are_reported_in_one_line(checkpoint, tmp_path, monkeypatch):
    """Files are missing, damaged or from another model."""
    settings = (checkpoint / pretrained.CONFIG_FILE).read_text()
    target = tmp_path / pretrained.CONFIG_FILE

    def misfit(**fields):
        config = small(tmp_path)
        config.model = dataclasses.replace(config.model, **fields)
        (line,) = model.misfits(config)
        assert "\n" not in line
        return line

    assert "got no such file, expected the settings of a FOLNet" in misfit()
    target.write_text(settings)
    assert "model.safetensors: file not found" in misfit()
    (tmp_path / pretrained.WEIGHTS_FILE).write_bytes(b"not one")
    assert "model.safetensors: damaged" in misfit()
    (tmp_path / pretrained.WEIGHTS_FILE).write_bytes((checkpoint / pretrained.WEIGHTS_FILE).read_bytes())
    target.write_text(settings.replace('"hidden_size": 16', '"hidden_size": 20'))
    line = misfit()
    assert "does not match config.json: folnet.embeddings" in line
    assert line.endswith(" more")
    with monkeypatch.context() as patched:
        for wrong, said in ((["a", "b"], "a; b"), (["a", "b", "c"], "a; b and 1 more")):
            patched.setattr(model.parameters, "misfits", lambda *shapes, wrong=wrong: wrong)
            assert misfit().endswith(f"does not match config.json: {said}")
    target.write_text(settings.replace('"model_type": "folnet"', '"model_type": "bert"'))
    assert "got model_type 'bert'" in misfit()
    target.write_text(settings)
    assert "model.dtype: got 'int8'" in misfit(dtype="int8")
    target.write_text(settings.replace('"absolute_position": false', '"absolute_position": true'))
    config = small(tmp_path, length=17)
    assert "length: got 17, expected at most 16" in model.misfits(config)[0]
