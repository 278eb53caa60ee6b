"""Exported models of kinship problems."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.exporting import Options, run_exported
from experiments.kinship import train
from experiments.kinship.load import of_kinship
from experiments.registry import open_model
from folnet import kinship
from tests.experiments.exporting.test_models import compare, compare_gradients, exported
from tests.experiments.kinship.small import small, with_data

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def problems(config, lengths) -> list[dict[str, Any]]:
    sources = (kinship.Kinship(seed=5, lengths=(length,)) for length in lengths)
    return [config.reader(config.model, source)(source, range(3)) for source in sources]


@pytest.mark.parametrize(("model", "inverses"), [("j.a", False), ("bert", False), ("relation_aware", True)])
def test_what_is_exported_is_the_model_and_its_inputs(model, inverses):
    """Shapes, bounds and lengths are those of real problems; the function is the model without dropout."""
    config = with_data(inverses=inverses)
    config.model = model
    module, (arrays,) = config.make(model), problems(config, (4,))
    exportable = of_kinship(config, {"p": np.ones(3, np.float32)}, 4)
    labels = arrays.pop("labels")
    assert set(exportable.inputs) == set(arrays)
    for name, described in exportable.inputs.items():
        sizes = {"batch": len(labels), "length": arrays["input_ids"].shape[1]}
        assert tuple(sizes.get(str(size), size) for size in described.shape) == arrays[name].shape
        assert described.dtype == str(arrays[name].dtype)
        if described.range is not None:
            least, most = described.range
            assert least <= arrays[name].min() <= arrays[name].max() <= most
            assert described.pad is not None
    settings = module.config
    assert exportable.inputs["input_ids"].range == (0, settings.vocab_size - 1)
    assert (exportable.inputs["attention_mask"].default, exportable.inputs["attention_mask"].pad) == (1, 0)
    if model == "bert":
        assert exportable.inputs["token_type_ids"].range == (0, 1)
        assert exportable.longest == settings.max_position_embeddings
    else:
        relations = exportable.inputs["relation_ids"]
        assert (relations.range, relations.pad) == ((-1, 15 * (1 + inverses) - 1), -1)
        assert exportable.longest is None
    width = max(found["input_ids"].shape[1] for found in problems(config, (2, 3, 4)))
    assert (exportable.lengths, exportable.shortest, exportable.source["step"]) == ((width,), 2, 4)
    assert exportable.outputs["logits"].labels == kinship.TARGET_NAMES
    assert exportable.kind == f"encoder (kinship, {model})"


@pytest.mark.slow
@pytest.mark.parametrize("model", ["j.a", "bert", "relation_aware"])
def test_problems_of_any_length_of_the_tests(model, tmp_path):
    config = small(model=model)
    module = config.make(model)
    params = jax.jit(module.init)(jax.random.key(0), jnp.zeros((1, 2), jnp.int32))["params"]
    exportable = of_kinship(config, params, 4)
    loaded = exported(exportable, tmp_path)
    shorter, longest = problems(config, (2, 4))
    for arrays in (shorter, longest):
        inputs = {name: array for name, array in arrays.items() if name != "labels"}
        wanted = jax.jit(exportable.function)(params, inputs)["logits"]
        np.testing.assert_allclose(loaded(inputs)["logits"], wanted, rtol=1e-4, atol=1e-5)
    found = run_exported.answer(
        loaded, {"inputs": {name: array[0].tolist() for name, array in inputs.items()}}
    )
    assert found["labels"]["logits"] == kinship.TARGET_NAMES[int(np.argmax(wanted[0]))]


def test_a_run_is_opened_by_its_config(finished):
    """Its last checkpoint or another one, with the trained parameters."""
    _, workdir, results = finished
    exportable = open_model(workdir)
    assert exportable.source["experiment"] == "experiments.kinship"
    assert exportable.source["params_sha256"] == results["j.a"].summary["params_sha256"]
    assert exportable.source["step"] == 4
    assert open_model(workdir, step=2).source["step"] == 2
    assert set(exportable.inputs) == {"input_ids", "attention_mask", "relation_ids", "query"}
    chex.assert_trees_all_equal(exportable.params, results["j.a"].params)


@pytest.mark.slow
def test_a_runs_artifact_has_its_answers_and_derivatives(tmp_path):
    config, workdir = small(), tmp_path / "run"
    train.main(config, workdir=workdir)
    exportable = open_model(workdir)
    (arrays,) = problems(config, (4,))
    inputs = {name: arrays[name] for name in exportable.inputs}
    loaded = exported(exportable, tmp_path, Options(derivative=True, lengths=(inputs["input_ids"].shape[1],)))
    compare(exportable, loaded, inputs)
    compare_gradients(exportable, loaded, inputs)
