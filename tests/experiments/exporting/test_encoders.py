"""Artifacts of FOLNets and Transformers with every head."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.exporting import Options, encoders, export_model, run_exported
from experiments.folnet_pretrain import load as folnet_load
from experiments.registry import open_model
from experiments.runtime.workdir import write_json
from folnet import FOLNetConfig, TransformerConfig
from folnet.tokenization import WordPieceTokenizer
from tests.experiments.exporting import small as small_exports
from tests.experiments.exporting.test_models import compare, compare_gradients, exported, live
from tests.experiments.folnet_pretrain import small as small_folnet

pytestmark = pytest.mark.usefixtures("compiled_quickly")
SIZES: dict[str, Any] = {
    "vocab_size": 104,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "head_size": 8,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
    "num_labels": 3,
}
FOLNET = FOLNetConfig(**SIZES, relation_size=8, relation_intermediate_size=16, operators="jmc.atp")
TRANSFORMER = TransformerConfig(**SIZES, absolute_position=True, relative_position="none")
LENGTH = 10


def texts(*shape: int, mask: bool = True) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 104, shape).astype(np.int32)
    lengths = rng.integers(2, shape[-1] + 1, shape[:-1])[..., None]
    found = {"input_ids": ids, "token_type_ids": (ids % 2).astype(np.int32)}
    return found | ({"attention_mask": np.arange(shape[-1]) < lengths} if mask else {})


def saved(name, config, folder):
    """A directory with a model of random parameters."""
    model = encoders.ENCODERS[name](config)
    shape = (1, 1, 4) if name == "FOLNetForMultipleChoice" else (1, 4)
    params = jax.jit(model.init)(jax.random.key(5), jnp.zeros(shape, jnp.int32))["params"]
    model.save_pretrained(folder, params)
    return model, params


NAMES = [name for name in encoders.ENCODERS if name != "Transformer"]


@pytest.mark.slow
def test_a_directory_s_model_gives_what_its_class_gives(tmp_path):
    for name in NAMES:
        check_directory(name, tmp_path / name)


def check_directory(name, tmp_path):
    """Compares the artifact of a saved model with its class."""
    model, params = saved(name, FOLNET, tmp_path / "saved")
    exportable = open_model(tmp_path / "saved")
    assert exportable.source["class"] == name
    assert exportable.text is None  # there is no vocabulary
    loaded = exported(exportable, tmp_path, Options(lengths=(LENGTH,)))
    shape = (2, 3, LENGTH) if name == "FOLNetForMultipleChoice" else (2, LENGTH)
    inputs = texts(*shape)
    compare(exportable, loaded, inputs)
    found = cast(Any, jax.jit(model.apply)({"params": params}, *inputs.values()))
    outputs = loaded(inputs)
    fields = {field: value for field, value in vars(found).items() if value is not None}
    assert len(fields) == len(outputs)
    for name, array in outputs.items():
        field = name if name in fields else "logits"
        np.testing.assert_allclose(array, fields[field], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_the_fields_of_the_class(name):
    """Each under its own name, but logits of words, which all classes name alike; what a call is given."""
    fields: dict[str, Any] = {
        "last_hidden_state": 1, "pooler_output": 2, "relation_hidden_state": 3, "prediction_logits": 4,
        "seq_relationship_logits": 5, "logits": 6, "start_logits": 7, "end_logits": 8,
    }  # fmt: skip
    asked: list[Any] = []
    implementations: list[Any] = []

    kind: Any = encoders.ENCODERS[name]

    class Model(kind):
        def apply(self, variables, *inputs):
            asked.append((variables, inputs))
            implementations.append(getattr(self.config, "trans_implementation", None))
            return SimpleNamespace(**fields)

    Model.__name__ = name
    model = encoders.of_encoder(Model(FOLNET), {"a": 1})
    inputs = dict.fromkeys(("attention_mask", "token_type_ids", "input_ids"))
    inputs = {key: value for value, key in enumerate(inputs)}
    found = model.function({"b": 2}, inputs)
    assert model.with_kernels is not None
    assert model.with_kernels(("gpu", "tpu"))({"b": 2}, inputs) == found
    assert asked == [({"params": {"b": 2}}, (2, 1, 0))] * 2
    assert implementations == [FOLNET.trans_implementation, ("gpu", "tpu")]
    wanted = {
        "FOLNet": {"last_hidden_state": 1, "pooler_output": 2, "relation_hidden_state": 3},
        "FOLNetForPreTraining": {"prediction_logits": 4, "seq_relationship_logits": 5},
        "FOLNetForMaskedLM": {"prediction_logits": 6},
        "FOLNetForSequenceClassification": {"logits": 6},
        "FOLNetForTokenClassification": {"logits": 6},
        "FOLNetForMultipleChoice": {"logits": 6},
        "FOLNetForQuestionAnswering": {"start_logits": 7, "end_logits": 8},
    }
    assert found == wanted[name]
    assert model.outputs.keys() == found.keys()
    choices = ("choices",) if name == "FOLNetForMultipleChoice" else ()
    assert {one.shape for one in model.inputs.values()} == {("batch", *choices, "length")}
    assert (model.shortest, model.longest, model.lengths) == (2, None, (12,))


@pytest.mark.parametrize(
    ("positions", "absolute", "length"), [(500, True, 128), (20, True, 20), (500, False, 128)]
)
def test_lengths_are_those_that_positions_leave_room_for(positions, absolute, length):
    config = TRANSFORMER.replace(max_position_embeddings=positions, absolute_position=absolute)
    model = encoders.of_encoder(encoders.ENCODERS["Transformer"](config), {})
    assert (model.lengths, model.longest) == ((length,), positions if absolute else None)
    assert model.with_kernels is None


def test_a_directory_is_opened_with_its_parameters_and_vocabulary(tmp_path):
    tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(10, 109))])
    assert tokenizer.vocab_size == FOLNET.vocab_size
    model = encoders.FOLNetForSequenceClassification(FOLNET)
    params = small_exports.drawn(model, jnp.zeros((1, 4), jnp.int32), seed=0)
    model.save_pretrained(tmp_path, params)
    tokenizer.save_pretrained(tmp_path)
    opened = open_model(tmp_path)
    assert opened.kind == "encoder (FOLNetForSequenceClassification)"
    jax.tree.map(np.testing.assert_array_equal, opened.params, params)
    assert (opened.text or {})["vocabulary"] == list(tokenizer.vocabulary)


@pytest.mark.slow
def test_a_shorter_text_is_what_the_model_gives_without_padding(tmp_path):
    exportable = small_exports.encoder()
    loaded = exported(exportable, tmp_path)
    inputs = texts(2, 7, mask=False)
    found = loaded(inputs)
    wanted = live(exportable, inputs | {"attention_mask": np.ones((2, 7), bool)})
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("config", [TRANSFORMER, FOLNET, FOLNET.replace(relative_position="none")])
def test_a_length_is_free_where_positions_are_not_tables(config, tmp_path):
    saved("FOLNetForSequenceClassification", config, tmp_path / "saved")
    exportable = open_model(tmp_path / "saved")
    loaded = exported(exportable, tmp_path, Options(lengths=None, derivative=True))
    for length in (2, 11):
        compare(exportable, loaded, texts(3, length))
    compare_gradients(exportable, loaded, texts(3, 5))
    if config is TRANSFORMER:
        with pytest.raises(run_exported.Refused, match="length: got 13, expected 2 to 12"):
            loaded(texts(3, 13))


@pytest.mark.slow
def test_t5_s_buckets_ask_for_a_length(tmp_path):
    """The buckets are a table of numbers, which needs a concrete length."""
    saved("FOLNetForSequenceClassification", FOLNET.replace(relative_position="t5"), tmp_path / "saved")
    with pytest.raises(ValueError, match=r"batch, length: got any size, expected a number"):
        export_model(open_model(tmp_path / "saved"), tmp_path / "m.jaxmodel", Options(lengths=None))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chip", "platform", "dtype", "batch", "call"),
    [("h200", "cuda", "bfloat16", 8, "mosaic_gpu"), ("v5e", "tpu", "float32", None, "tpu_custom_call")],
)
def test_hand_written_kernels_are_there_when_asked_for(chip, platform, dtype, batch, call, tmp_path):
    # Of two layers: nothing looks at what the last one says of pairs.
    exportable = small_exports.encoder(relation_size=64, operators="j.at", dtype=dtype, num_hidden_layers=2)
    path = tmp_path / "m.jaxmodel"
    options = Options(kernels=(chip,), platforms=(platform,), batch=batch, lengths=(128,))
    manifest = export_model(exportable, path, options)
    _, members = run_exported.read_artifact(path)
    assert call in jax.export.deserialize(bytearray(members["program-128.bin"])).mlir_module()
    assert manifest["kernels"]["names"] == [chip]
    with pytest.raises(run_exported.Refused, match=f"platform: got cpu, expected one of {platform}"):
        run_exported.load(path)
    portable = export_model(exportable, path, Options(batch=batch, lengths=(128,)))
    _, members = run_exported.read_artifact(path)
    assert call not in jax.export.deserialize(bytearray(members["program-128.bin"])).mlir_module()
    assert portable["platforms"] == ["cpu", "cuda", "tpu"]


@pytest.mark.slow
def test_masked_words_are_filled_in_from_text_to_text(tmp_path):
    trained, exportable = small_exports.trained_encoder(), small_exports.encoder()
    loaded = exported(exportable, tmp_path)
    text = "the [MASK] sees the dog."
    found = run_exported.answer(loaded, {"text": [text, "a cat"], "id": "x"})
    inputs = trained.tokenizer([text], length=16, special_tokens=True)
    outputs = trained.model.apply(
        {"params": trained.params}, inputs.input_ids, inputs.token_type_ids, np.ones((1, 16), bool)
    )
    place = inputs.input_ids[0].tolist().index(trained.tokenizer.mask_id)
    logits = np.asarray(cast(Any, outputs).prediction_logits)[0, place, : len(trained.tokenizer)]
    shares = np.asarray(jax.nn.softmax(logits))
    best = shares.argsort()[::-1][:5]
    first, second = found["answers"]
    assert [word for word, _ in first["masks"][0]] == [trained.tokenizer.vocabulary[i] for i in best]
    np.testing.assert_allclose([share for _, share in first["masks"][0]], shares[best], atol=1e-5)
    assert second["masks"] == []
    assert len(second["outputs"]["seq_relationship_logits"]) == 2


def test_text_says_what_is_padding_only_to_models_trained_so():
    tokenizer = WordPieceTokenizer.train(small_exports.TEXTS, 100)
    config = small_folnet.small(Path("nowhere"))
    model = config.model.make(config.data.pretrain_loss)
    for masks_padding in (False, True):
        config.mask_padding = masks_padding
        text = folnet_load.of_pretraining(folnet_load.Trained(model, {}, tokenizer, 0, config)).text or {}
        assert text["masks_padding"] == masks_padding
        assert text["vocabulary"] == list(tokenizer.vocabulary)
    larger = WordPieceTokenizer([*tokenizer.vocabulary, *map(str, range(10_000, 10_104))])
    assert encoders.of_encoder(model, {}, larger).text is None


def test_other_classes_are_refused(tmp_path):
    described = {"model_type": "folnet", "architectures": ["FOLNetForGo"], **FOLNET.to_dict()}
    write_json(tmp_path / "config.json", described)
    with pytest.raises(ValueError, match="got a 'FOLNetForGo', expected one of 'FOLNet', 'Transformer'"):
        open_model(tmp_path)
