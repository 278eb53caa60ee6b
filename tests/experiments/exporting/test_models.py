"""The function to export is the model's, and the artifact of each paper's model gives its outputs."""

from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import pytest

from experiments.boxworld import load as boxworld_load
from experiments.exporting import Exportable, Input, Options, export_model, run_exported
from experiments.mathematics import load as mathematics_load
from experiments.mathematics import measures
from experiments.registry import open_model
from experiments.runtime import params_sha256
from experiments.runtime.workdir import write_json
from tests.experiments.exporting import small as small_exports
from tp_transformer.mathematics import DEFAULT

pytestmark = pytest.mark.usefixtures("compiled_quickly")
RELEASED = Path(__file__).parents[3] / "results" / "boxworld" / "quick_simplicial"
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}


def exported(model: Exportable, folder, options: Options | None = None) -> run_exported.Model:
    export_model(model, folder / "m.jaxmodel", options)
    return run_exported.load(folder / "m.jaxmodel")


def live(model: Exportable, inputs) -> dict[str, Any]:
    return jax.device_get(jax.jit(model.function)(model.params, inputs))


def compare(model: Exportable, loaded: run_exported.Model, inputs) -> None:
    found, wanted = loaded(inputs), live(model, inputs)
    assert found.keys() == wanted.keys() == model.outputs.keys()
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_allclose(found[name], array, **TOLERANCE, err_msg=name)


def compare_gradients(model: Exportable, loaded: run_exported.Model, inputs) -> None:
    rng = np.random.default_rng(1)
    outputs = jax.eval_shape(model.function, model.params, inputs)
    cotangents = {name: rng.normal(size=array.shape).astype(array.dtype) for name, array in outputs.items()}

    @jax.jit
    def pullback(params, cotangents):
        return jax.vjp(lambda params: dict(model.function(params, inputs)), params)[1](cotangents)[0]

    wanted = jax.device_get(pullback(model.params, cotangents))
    found = loaded.gradient(inputs, cotangents)
    largest = 0.0
    for path, array in jax.tree_util.tree_leaves_with_path(wanted):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        scale = np.abs(array).max()
        np.testing.assert_allclose(
            found.pop(name), array, rtol=1e-4, atol=1e-4 * max(scale, 1e-3), err_msg=name
        )
        largest = max(largest, scale)
    assert not found
    assert largest > 1e-3


def boards(model: Exportable, count: int) -> dict[str, np.ndarray]:
    return {"observation": drawn(model.inputs["observation"], count)}


def tokens(model: Exportable, batch: int, length: int) -> dict[str, np.ndarray]:
    return {"tokens": drawn(model.inputs["tokens"], batch, length)}


def drawn(one: Input, *free: int) -> np.ndarray:
    """Draws random numbers for an input; `free` are the sizes of its leading symbols."""
    _, most = one.range or (0, 255)
    shape = (*free, *(size for size in one.shape if isinstance(size, int)))
    return np.random.default_rng(0).integers(0, most + 1, shape).astype(one.dtype)


# ---- the functions


def stepwise(cell: str, tokens: np.ndarray) -> np.ndarray:
    """The logits of a recurrent model, one symbol after the other, of its cell and its read-out alone."""
    config, params = small_exports.trained_recurrent(cell)
    module = config.cell.make()

    @jax.jit
    def step(carry, x):
        carry, hidden = cast(Any, module.apply({"params": params["cell"]}, carry, x))
        return carry, hidden @ params["outputs"]["kernel"] + params["outputs"]["bias"][None]

    symbols = np.eye(10, dtype=np.float32)[tokens[..., 0]]
    carry, logits = module.initialize_carry(jax.random.key(0), symbols[:, 0].shape), []
    for time in range(tokens.shape[1]):
        carry, found = step(carry, symbols[:, time])
        logits.append(found)
    return np.stack(logits, axis=1)


def test_the_function_of_an_agent_is_its_module():
    trained, model = small_exports.trained_agent(), small_exports.agent()
    inputs = boards(model, 3)
    found = live(model, inputs)
    wanted = jax.jit(trained.agent.apply)({"params": trained.params}, inputs["observation"])
    assert found.keys() == {"logits", "value"}
    for name in found:
        np.testing.assert_allclose(found[name], getattr(wanted, name), **TOLERANCE)
        assert np.std(found[name]) > 1e-4  # boards differ
    assert model.derivable is not None
    for name, array in jax.jit(model.derivable)(model.params, inputs).items():  # one board at a time
        np.testing.assert_allclose(array, found[name], **TOLERANCE)
    second = boxworld_load.of_agent(trained, seed=1).source
    assert (model.source["seed"], second["seed"]) == (trained.run.seed, trained.run.seed + 1)
    assert model.source["params_sha256"] == params_sha256(trained.params)


def test_the_function_of_a_solver_appends_the_likeliest_symbol():
    """Found again by applying the whole model to the answer so far."""
    trained = small_exports.trained_solver()
    model = mathematics_load.of_solver(trained)
    inputs = {"source": np.asarray(trained.encode(["What is 2 + 2?", "Is 3 a factor of 12345?"]))}
    found = live(model, inputs)["tokens"]
    target = np.full((2, measures.LONGEST), DEFAULT.pad, np.int32)
    target[:, 0] = DEFAULT.start
    apply = jax.jit(trained.model.apply)
    for place in range(measures.LONGEST - 1):
        logits = cast(Any, apply({"params": trained.params}, inputs["source"], target))[:, place]
        target[:, place + 1] = np.argmax(logits, axis=-1)
    for row, wanted in zip(found, target, strict=True):
        (ends,) = np.nonzero((wanted == DEFAULT.end) | (wanted == DEFAULT.pad))
        length = min([*ends.tolist(), measures.LONGEST - 1]) + 1
        assert length > 10
        np.testing.assert_array_equal(row[:length], wanted[:length])
        if len(ends):
            np.testing.assert_array_equal(row[length:], DEFAULT.pad)
    assert found.shape == (2, measures.LONGEST + 1)
    assert np.any(found == DEFAULT.end)
    assert np.sum(found[0] != found[1]) > 10


def test_the_function_of_an_encoder_is_its_module():
    trained, model = small_exports.trained_encoder(), small_exports.encoder()
    ids = np.random.default_rng(0).integers(0, 100, (2, 6)).astype(np.int32)
    mask = np.arange(6)[None] < np.array([[6], [4]])
    found = live(model, {"input_ids": ids, "token_type_ids": ids % 2, "attention_mask": mask})
    wanted = jax.jit(trained.model.apply)({"params": trained.params}, ids, ids % 2, mask)
    assert found.keys() == {"prediction_logits", "seq_relationship_logits"}
    for name in found:
        np.testing.assert_allclose(found[name], getattr(wanted, name), **TOLERANCE)
    others = live(model, {"input_ids": ids, "token_type_ids": ids % 2, "attention_mask": mask | True})
    assert np.abs(others["prediction_logits"] - found["prediction_logits"])[1, :4].max() > 1e-5


# ---- the artifacts


def test_a_recurrent_cell_at_any_batch_and_length(tmp_path):
    model = small_exports.recurrent()
    loaded = exported(model, tmp_path, Options(derivative=True))
    for shape in ((3, 7), (1, 1)):
        inputs = tokens(model, *shape)
        np.testing.assert_allclose(
            loaded(inputs)["logits"], stepwise("second_order", inputs["tokens"]), **TOLERANCE
        )
    compare_gradients(model, loaded, tokens(model, 2, 5))
    assert loaded.manifest["source"] == {"step": 5, "params_sha256": params_sha256(model.params)}


@pytest.mark.slow
def test_other_cells(tmp_path):
    for cell in ("elman", "multiplicative", "ntm", "multiple_pattern_ntm", "lstm"):
        model = small_exports.recurrent(cell)
        inputs = tokens(model, 3, 7)
        found = exported(model, tmp_path / cell)(inputs)["logits"]
        np.testing.assert_allclose(found, stepwise(cell, inputs["tokens"]), **TOLERANCE, err_msg=cell)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["simplicial", "relational"])
def test_an_agent_at_any_batch_with_its_derivative(kind, tmp_path):
    model = small_exports.agent(kind)
    loaded = exported(model, tmp_path, Options(derivative=True))
    for count in (1, 5):
        compare(model, loaded, boards(model, count))
    compare_gradients(model, loaded, boards(model, 3))
    compare(model, exported(model, tmp_path), boards(model, 4))
    assert [one["labels"] for one in loaded.manifest["outputs"]] == [list(boxworld_load.ACTIONS), []]


@pytest.mark.slow
def test_answers_to_questions_are_those_of_the_live_model(tmp_path):
    trained, model = small_exports.trained_solver(), small_exports.solver()
    loaded = exported(model, tmp_path)
    questions = ["What is 2 + 2?", "Is 3 a factor of 12345?" * 3, "x" * 160, ""]
    for question in questions:
        compare(model, loaded, {"source": np.asarray(trained.encode([question]))})
        found = run_exported.answer(loaded, {"text": question})
        assert found == {"text": trained.answer([question])[0]}
    found = run_exported.answer(loaded, {"text": questions[:2], "id": 0})
    answers = [{"text": answer} for answer in trained.answer(questions[:2])]
    assert found == {"id": 0, "answers": answers}
    with pytest.raises(run_exported.Refused, match=r"length: got 163, expected at most 162"):
        run_exported.answer(loaded, {"text": "x" * 161})


@pytest.mark.slow
def test_one_program_answers_questions_of_any_length(tmp_path):
    trained, model = small_exports.trained_solver(), small_exports.solver()
    loaded = exported(model, tmp_path, Options(lengths=None))
    questions = ["What is 2 + 2?", "Is 3 a factor of 12345?" * 3]
    for question in questions:  # as long as they are, not filled up
        source = np.asarray(trained.vocabulary.encode_batch([question], len(question) + 2))
        compare(model, loaded, {"source": source})
    found = run_exported.answer(loaded, {"text": questions})
    assert found == {"answers": [{"text": answer} for answer in trained.answer(questions)]}


@pytest.mark.slow
def test_symbols_chosen_one_by_one_have_no_derivative(tmp_path):
    with pytest.raises(ValueError, match="derivative: got True, expected False for this sequence to seq"):
        export_model(small_exports.solver(), tmp_path / "m.jaxmodel", Options(derivative=True))


def test_a_released_agent_is_opened_with_where_it_comes_from():
    model = open_model(RELEASED)
    assert model.kind == "agent"
    assert model.source["experiment"] == "experiments.boxworld"
    assert model.source["step"] == 480
    assert model.source["run"] == str(RELEASED)
    assert model.source["config"]["agent"]["features"] == 32
    assert model.source["params_sha256"] == params_sha256(model.params)
    assert model.inputs["observation"].shape == ("batch", 5, 7, 3)


def test_directories_without_a_model_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no trained model"):
        open_model(tmp_path)
    write_json(tmp_path / "config.json", {"seed": 0, "nonsense": 1})
    with pytest.raises(ValueError, match="matches no known experiment, expected one of boxworld"):
        open_model(tmp_path)
    write_json(tmp_path / "config.json", [1])
    with pytest.raises(ValueError, match=r"no trained model: .* expected a JSON object"):
        open_model(tmp_path)
