"""The PyTorch side of a directory: its text is read and, with PyTorch and transformers there, it runs."""

import ast
import importlib
import json
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import folnet
from folnet import pretrained
from tests.folnet import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

CODE = Path(pretrained.__file__).parent / "pytorch" / pretrained.CODE_FILE
HEADS = (
    folnet.FOLNet,
    folnet.FOLNetForPreTraining,
    folnet.FOLNetForMaskedLM,
    folnet.FOLNetForSequenceClassification,
    folnet.FOLNetForTokenClassification,
    folnet.FOLNetForMultipleChoice,
    folnet.FOLNetForQuestionAnswering,
)
SETTINGS: dict[str, dict[str, Any]] = {
    "as published": {"num_hidden_layers": 2},
    "all else": {
        "relative_position": "t5",
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 5,
        "absolute_position": True,
        "max_position_embeddings": 12,
        "diagonal_link": True,
        "cjoin": "paper",
        "activation": "reglu",
        "head_activation": "relu",
    },
    "a graph": {
        "relative_position": "none",
        "relation_vocab_size": 4,
        "activation": "implication",
        "operators": "jc.tp",
    },
}
MASK = np.asarray([[1] * 7, [1] * 5 + [0] * 2])


def test_settings_are_those_of_the_jax_model():
    """The defaults, since config.json of another program may leave some out."""
    (config,) = (
        node
        for node in ast.walk(ast.parse(CODE.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and node.name == "FOLNetConfig"
    )
    (init,) = (node for node in config.body if isinstance(node, ast.FunctionDef))
    names = [argument.arg for argument in init.args.args[1:]]
    defaults = dict(zip(names, map(ast.literal_eval, init.args.defaults), strict=True))
    ours = folnet.FOLNetConfig().to_dict()
    # Of no effect on what PyTorch computes, or fields of its own classes.
    unread = {"num_labels", "problem_type", "pretrain_loss", "labels", "foreign", "remat"}
    unread |= {"dtype", "param_dtype"}
    assert defaults == {
        name: value for name, value in ours.items() if name not in unread | {"trans_implementation"}
    }


def test_classes_have_the_names_in_the_settings():
    tree = ast.parse(CODE.read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    named = {name.removeprefix("modeling_folnet.") for name in pretrained.AUTO_MAP.values()}
    writers = (folnet.FOLNetForCausalLM, folnet.FOLNetForConditionalGeneration)
    assert named == {cls.__name__ for cls in (*HEADS, *writers)} | {"FOLNetConfig"}
    assert named <= defined


def test_calls_name_all_of_their_arguments():
    """The Trainer drops columns that a signature does not name, and counts a loss otherwise if it has **."""
    tree = ast.parse(CODE.read_text(encoding="utf-8"))
    calls = {
        each.name: function.args
        for each in tree.body
        if isinstance(each, ast.ClassDef)
        for function in each.body
        if isinstance(function, ast.FunctionDef) and function.name == "forward"
    }
    for cls in (*HEADS, folnet.FOLNetForCausalLM, folnet.FOLNetForConditionalGeneration):
        arguments = calls.get(cls.__name__, calls["Headed"])
        names = [argument.arg for argument in arguments.args[1:4]]
        assert names == ["input_ids", "attention_mask", "token_type_ids"]
        assert arguments.kwarg is None


@pytest.fixture(scope="module")
def transformers():
    """Without a network, and without asking whether the directory's code may run."""
    for needed in ("torch", "transformers"):
        pytest.importorskip(needed)
    return importlib.import_module("transformers")


def inputs(cls: Any, fields: Any) -> dict[str, np.ndarray]:
    """Returns a batch with padding, and relations if the model takes them."""
    ids, types = map(np.asarray, small.tokens())
    given = {"input_ids": ids, "token_type_ids": types, "attention_mask": MASK}
    if cls is folnet.FOLNetForMultipleChoice:
        return {name: np.stack([array, np.roll(array, 1, 0)], 1) for name, array in given.items()}
    if "relation_vocab_size" in fields:
        given["relation_ids"] = np.random.default_rng(0).integers(-1, 4, (2, 7, 7))
    return given


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cls", HEADS)
@pytest.mark.parametrize("name", SETTINGS)
def test_pytorch_computes_the_same_and_saves_what_jax_opens(name, cls, transformers, tmp_path):
    """Outputs within 1e-5 with a mask of padding and without; the directory goes there and back."""
    torch = pytest.importorskip("torch")
    labels = 2 if cls is folnet.FOLNetForMultipleChoice else 3
    model = cls(small.config(num_labels=labels, **SETTINGS[name]))
    params = small.draw(model)
    model.save_pretrained(tmp_path / "ours", params)
    auto = next(key for key, of in pretrained.AUTO_MAP.items() if of.endswith(f".{cls.__name__}"))
    options: Any = {"trust_remote_code": True, "local_files_only": True}
    theirs, info = getattr(transformers, auto).from_pretrained(
        tmp_path / "ours", output_loading_info=True, **options
    )
    assert not any(info.values())
    theirs.eval()
    given, computed = inputs(cls, SETTINGS[name]), small.quickly(lambda p, of: small.apply(model, p, **of))
    for masked in (True, False):
        batch = given if masked else {key: of for key, of in given.items() if key != "attention_mask"}
        want = computed(params, jax.tree.map(jnp.asarray, batch))
        with torch.no_grad():
            found = theirs(**{key: torch.tensor(of) for key, of in batch.items()})
        assert set(want) == set(found.keys())
        for name in want:
            one, other = found[name].numpy(), np.asarray(want[name])
            if masked and other.shape[1] == 7:  # what is at padding is nobody's
                other, one = other[MASK == 1], one[MASK == 1]
            np.testing.assert_allclose(one, other, atol=1e-5, err_msg=name)
    theirs.save_pretrained(tmp_path / "theirs")
    again, same = cls.from_pretrained(tmp_path / "theirs")
    assert again.config.replace(foreign="") == model.config
    chex.assert_trees_all_equal(same, params)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cls", HEADS[1:])
def test_losses_are_the_same(cls, transformers, tmp_path):
    """Of labels some of which do not count; and they have gradients."""
    torch = pytest.importorskip("torch")
    choices = cls is folnet.FOLNetForMultipleChoice
    model = cls(small.config(operators="j.a", num_labels=2 if choices else 3, hidden_dropout_prob=0.0))
    params, given = small.draw(model), inputs(cls, {})
    rows, tokens = np.asarray([1, 0]), np.where(MASK, np.arange(7) % 3, -100)
    labels = {"labels": rows}
    if cls in (folnet.FOLNetForMaskedLM, folnet.FOLNetForTokenClassification):
        labels = {"labels": tokens}
    elif cls is folnet.FOLNetForPreTraining:
        labels = {"labels": tokens, "next_sentence_label": rows}
    elif cls is folnet.FOLNetForQuestionAnswering:
        labels = {"start_positions": rows, "end_positions": rows + 2}
    model.save_pretrained(tmp_path, params)
    auto = next(key for key, of in pretrained.AUTO_MAP.items() if of.endswith(f".{cls.__name__}"))
    theirs = (
        getattr(transformers, auto)
        .from_pretrained(tmp_path, trust_remote_code=True, local_files_only=True)
        .eval()
    )
    want = small.apply(model, params, **jax.tree.map(jnp.asarray, {**given, **labels})).loss
    found = theirs(**{name: torch.tensor(array) for name, array in {**given, **labels}.items()}).loss
    np.testing.assert_allclose(found.item(), want, rtol=1e-5)
    found.backward()
    assert any(parameter.grad is not None for parameter in theirs.parameters())


def writer(cls, transformers, folder, **fields):
    """Returns a model that writes, of both sides, and its parameters."""
    model = cls(small.config(**fields))
    params = small.draw(model)
    model.save_pretrained(folder, params)
    auto = next(key for key, of in pretrained.AUTO_MAP.items() if of.endswith(f".{cls.__name__}"))
    theirs, info = getattr(transformers, auto).from_pretrained(
        folder, output_loading_info=True, trust_remote_code=True, local_files_only=True
    )
    assert not any(info.values())
    return model, params, theirs.eval()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["as published", "all else"])
def test_the_language_model_is_the_same(name, transformers, tmp_path):
    """Logits, also of texts padded at the end, the loss, and the directory, there and back."""
    torch = pytest.importorskip("torch")
    fields = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, **SETTINGS[name]}
    model, params, theirs = writer(folnet.FOLNetForCausalLM, transformers, tmp_path, **fields)
    given = inputs(folnet.FOLNetForCausalLM, {})
    for batch in (given, {"input_ids": given["input_ids"]}):
        want = small.apply(model, params, **jax.tree.map(jnp.asarray, batch)).logits
        with torch.no_grad():
            found = theirs(**{key: torch.tensor(of) for key, of in batch.items()}).logits.numpy()
        real = batch.get("attention_mask", np.ones_like(MASK)) == 1
        np.testing.assert_allclose(found[real], np.asarray(want)[real], atol=1e-5)
    for mask in (MASK[:, ::-1].copy(), MASK):
        labels = np.where(mask, given["input_ids"], -100).astype(np.int64)
        batch = {**given, "attention_mask": mask, "labels": labels}
        want = small.apply(model, params, **jax.tree.map(jnp.asarray, batch)).loss
        loss = theirs(**{key: torch.tensor(of) for key, of in batch.items()}).loss
        np.testing.assert_allclose(loss.item(), want, rtol=1e-5)
    loss.backward()
    assert all(parameter.grad is not None for parameter in theirs.folnet.reasoner.layers_0.parameters())
    theirs.save_pretrained(tmp_path / "theirs")
    again, same = folnet.FOLNetForCausalLM.from_pretrained(tmp_path / "theirs")
    assert again.config.replace(foreign="") == model.config
    chex.assert_trees_all_equal(same, params)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("beams", [1, 3])
def test_generation_is_that_of_transformers(beams, transformers, tmp_path):
    """Greedy and by beams, of texts padded at the start, until an end token or the most."""
    torch = pytest.importorskip("torch")
    model, params, theirs = writer(folnet.FOLNetForCausalLM, transformers, tmp_path, num_hidden_layers=2)
    ids, mask = np.asarray(small.tokens(4)[0]), np.ones((4, 7), np.int32)
    mask[1, :3] = mask[2, :5] = 0
    pad = model.config.vocab_size - 1  # not 0, for which the beams of `transformers` pad with the end token
    ids = np.where(mask, ids, pad)
    options: dict[str, Any] = {"max_new_tokens": 6, "pad_token_id": pad, "num_beams": beams}
    free = folnet.generate(model, params, jnp.asarray(ids), attention_mask=jnp.asarray(mask), **options)
    # An end token that some of the texts have and others do not.
    end = int(free.sequences[0, 9])
    ends: tuple[dict[str, Any], ...] = ({}, {"eos_token_id": end})
    for some in ends:
        ours = folnet.generate(
            model, params, jnp.asarray(ids), attention_mask=jnp.asarray(mask), **options, **some
        )
        penalty = {"length_penalty": 0.0} if beams > 1 else {}
        given = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
        found = theirs.generate(**given, do_sample=False, use_cache=False, **options, **some, **penalty)
        length = found.shape[1]
        np.testing.assert_array_equal(found.numpy(), np.asarray(ours.sequences)[:, :length])
        assert (np.asarray(ours.sequences)[:, length:] == pad).all()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["as published", "all else", "jc.tp"])
def test_the_encoder_decoder_is_the_same(name, transformers, tmp_path):
    """Logits of targets of several lengths, with padding on both sides, the loss, and the directory."""
    torch = pytest.importorskip("torch")
    fields = SETTINGS.get(name, {"operators": name, "relative_position": "none"})
    model, params, theirs = writer(
        folnet.FOLNetForConditionalGeneration,
        transformers,
        tmp_path,
        **{"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, **fields},
    )
    ids, types = map(np.asarray, small.tokens())
    target = np.roll(ids, 1, 1)[:, :5].astype(np.int64)
    kept = np.asarray([[1] * 5, [1] * 3 + [0] * 2])
    masks = {"attention_mask": MASK, "decoder_attention_mask": kept, "token_type_ids": types}
    for length, more in ((5, masks), (5, {}), (1, {"attention_mask": MASK})):
        batch = {"input_ids": ids, "decoder_input_ids": target[:, :length], **more}
        want = small.apply(model, params, **jax.tree.map(jnp.asarray, batch))
        with torch.no_grad():
            found = theirs(**{key: torch.tensor(of) for key, of in batch.items()})
        real = kept[:, :length] == 1 if "decoder_attention_mask" in more else np.ones((2, length), bool)
        np.testing.assert_allclose(found.logits.numpy()[real], np.asarray(want.logits)[real], atol=1e-5)
    labels = np.where(kept, target, -100)
    batch = {"input_ids": ids, "decoder_input_ids": target, "labels": labels, **masks}
    want = small.apply(model, params, **jax.tree.map(jnp.asarray, batch)).loss
    loss = theirs(**{key: torch.tensor(of) for key, of in batch.items()}).loss
    np.testing.assert_allclose(loss.item(), want, rtol=1e-5)
    loss.backward()
    layer = theirs.decoder.reasoner.layers_0
    assert all(of.grad is not None for part in (layer.join, layer.join_input) for of in part.parameters())
    theirs.config.decoder_start_token_id, theirs.config.pad_token_id = 3, 0
    made = theirs.prepare_decoder_input_ids_from_labels(torch.tensor(labels))
    np.testing.assert_array_equal(made, np.where(np.roll(labels, 1, 1) < 0, 0, np.roll(labels, 1, 1)).clip(0)
                                  * (np.arange(5) > 0) + 3 * (np.arange(5) == 0))  # fmt: skip
    theirs.save_pretrained(tmp_path / "theirs")
    again, same = folnet.FOLNetForConditionalGeneration.from_pretrained(tmp_path / "theirs")
    assert again.config.replace(foreign="") == model.config
    chex.assert_trees_all_equal(same, params)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("beams", [1, 3])
def test_targets_are_those_of_transformers(beams, transformers, tmp_path):
    """Greedy and by beams, of inputs with padding, until an end token or the most."""
    torch = pytest.importorskip("torch")
    model, params, theirs = writer(
        folnet.FOLNetForConditionalGeneration, transformers, tmp_path, num_hidden_layers=2
    )
    ids, mask = np.asarray(small.tokens()[0]), jnp.asarray(MASK)
    pad = model.config.vocab_size - 1
    options: dict[str, Any] = {"max_new_tokens": 6, "pad_token_id": pad, "decoder_start_token_id": 2}
    options |= {"num_beams": beams}
    free = folnet.generate_from(model, params, jnp.asarray(ids), attention_mask=mask, **options)
    end = int(free.sequences[0, 3])  # which one text has and the other may not
    ends: tuple[dict[str, Any], ...] = ({}, {"eos_token_id": end})
    for some in ends:
        ours = folnet.generate_from(model, params, jnp.asarray(ids), attention_mask=mask, **options, **some)
        penalty = {"length_penalty": 0.0} if beams > 1 else {}
        given = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(MASK)}
        given["token_type_ids"] = torch.zeros_like(given["input_ids"])  # as tokenizers give them
        found = theirs.generate(**given, do_sample=False, use_cache=False, **options, **some, **penalty)
        length = found.shape[1]
        np.testing.assert_array_equal(found.numpy(), np.asarray(ours.sequences)[:, :length])
        assert (np.asarray(ours.sequences)[:, length:] == pad).all()


@pytest.mark.filterwarnings("ignore")
def test_a_pipeline_continues_a_text(transformers, tmp_path):
    """As the writer of a language model does, of texts that begin with [CLS] and do not end."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmn"]
    tokenizer = folnet.tokenization.WordPieceTokenizer(pieces)
    model, params, _ = writer(folnet.FOLNetForCausalLM, transformers, tmp_path)
    tokenizer.save_pretrained(tmp_path, closes=False)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, trust_remote_code=True)
    assert theirs(["A b", "c"], padding=True)["input_ids"] == [[2, 5, 6], [0, 2, 7]]
    pipeline = transformers.pipeline(
        "text-generation", model=str(tmp_path), tokenizer=theirs, trust_remote_code=True
    )
    [answer] = pipeline("a b", max_new_tokens=4, do_sample=False, return_tensors=True)
    ids = jnp.asarray([[2, 5, 6]])
    found = folnet.generate(model, params, ids, max_new_tokens=4, pad_token_id=0)
    assert answer["generated_token_ids"] == found.sequences[0].tolist()


@pytest.mark.filterwarnings("ignore")
def test_a_pipeline_answers(transformers, tmp_path):
    """Masked words and classes of text, by the tokenizer and the names in the directory."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmn"]
    tokenizer = folnet.tokenization.WordPieceTokenizer(pieces)
    for cls, task in (
        (folnet.FOLNetForMaskedLM, "fill-mask"),
        (folnet.FOLNetForSequenceClassification, "text-classification"),
    ):
        model = cls(small.config(operators="j.a", num_labels=2, labels=("no", "yes")))
        params, folder = small.draw(model), tmp_path / task
        model.save_pretrained(folder, params)
        tokenizer.save_pretrained(folder)
        theirs = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
        text = "a b [MASK] d"
        assert theirs(text)["input_ids"] == [2, 5, 6, 4, 8, 3]
        pipeline = transformers.pipeline(task, model=str(folder), tokenizer=theirs, trust_remote_code=True)
        answers, ids = pipeline(text), jnp.asarray([[2, 5, 6, 4, 8, 3]])
        logits = small.apply(model, params, ids, None, jnp.ones((1, 6), bool)).logits
        if task == "fill-mask":
            probabilities = jax.nn.softmax(logits[0, 3])
            assert answers[0]["token"] == int(probabilities.argmax())
        else:
            probabilities = jax.nn.softmax(logits[0])
            assert answers[0]["label"] == ("no", "yes")[int(probabilities.argmax())]
        assert answers[0]["score"] == pytest.approx(float(probabilities.max()), rel=1e-4)


def test_a_directory_keeps_the_code_of_others(tmp_path):
    """An `auto_map` that is not ours stays a foreign key of settings without our code."""
    other = json.dumps({"auto_map": {"AutoModel": "mine.Model"}})
    model = folnet.FOLNetDecoder(small.config(operators="j.", foreign=other))
    model.save_pretrained(tmp_path, small.draw(model))
    assert not (tmp_path / pretrained.CODE_FILE).exists()
    assert folnet.FOLNetDecoder.from_pretrained(tmp_path)[0] == model
    encoder = folnet.FOLNetForMaskedLM(model.config)
    encoder.save_pretrained(tmp_path / "encoder", small.draw(encoder))
    described = json.loads((tmp_path / "encoder" / "config.json").read_text(encoding="utf-8"))
    assert described["auto_map"] == pretrained.AUTO_MAP
    assert (tmp_path / "encoder" / pretrained.CODE_FILE).read_bytes() == CODE.read_bytes()
