"""What was exported runs by itself, and says what is wrong."""

import json
from typing import Any

import jax
import numpy as np
import pytest

from experiments.exporting import export_model
from tests.experiments import small_exports

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """An artifact with a derivative, and what was exported."""
    path = tmp_path_factory.mktemp("agent") / "agent.jaxmodel"
    exportable = small_exports.agent("relational")
    export_model(exportable, path)
    return path, exportable


def boards(exportable, count, seed=0):
    shape = exportable.inputs["observation"].shape[1:]
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), np.uint8)


def live(exportable, **inputs) -> dict[str, Any]:
    return jax.device_get(jax.jit(exportable.function)(exportable.params, inputs))


def test_a_process_that_can_import_nothing_of_ours_answers(agent):
    path, exportable = agent
    pictures = boards(exportable, 3)
    requests = [
        {"inputs": {"observation": pictures.tolist()}, "id": "three"},
        {"inputs": {"observation": pictures[0].tolist()}},
        {"inputs": {"observation": pictures[0, 0].tolist()}, "id": 2},
        {"text": "2 + 2"},
    ]
    lines = [*map(json.dumps, requests), "{"]
    done = small_exports.run_alone(path, stdin="\n".join(lines) + "\n")
    assert done.returncode == 0, done.stderr
    three, one, wrong, text, broken = map(json.loads, done.stdout.splitlines())
    wanted = live(exportable, observation=pictures)
    assert three["id"] == "three"
    for name, array in wanted.items():
        np.testing.assert_allclose(three["outputs"][name], array, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(one["outputs"][name], array[0], rtol=1e-5, atol=1e-6)
    actions = np.array(["left", "up", "right", "down"])
    assert three["labels"]["logits"] == actions[wanted["logits"].argmax(-1)].tolist()
    assert wrong["id"] == 2
    assert "observation has shape" in wrong["error"]
    assert "reads no text" in text["error"]
    assert "error" in broken
