"""Exported models of kinship problems."""

import json
from typing import Any

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
from tests.experiments.kinship.small import small

pytestmark = [pytest.mark.usefixtures("compiled_quickly"), pytest.mark.slow]


def problems(config, lengths) -> list[dict[str, Any]]:
    sources = (kinship.Kinship(seed=5, lengths=(length,)) for length in lengths)
    return [config.reader(config.model, source)(source, range(3)) for source in sources]


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


def test_a_run_is_opened_by_its_config(tmp_path):
    config = small()
    train.main(config, workdir=tmp_path / "run")
    exportable = open_model(tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert exportable.source["experiment"] == "experiments.kinship"
    assert exportable.source["params_sha256"] == summary["params_sha256"]
    (arrays,) = problems(config, (4,))
    inputs = {name: array for name, array in arrays.items() if name != "labels"}
    loaded = exported(exportable, tmp_path, Options(derivative=True, lengths=(inputs["input_ids"].shape[1],)))
    compare(exportable, loaded, inputs)
    compare_gradients(exportable, loaded, inputs)
