"""Artifacts of generating FOLNets."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.exporting import Options, export_model, run_exported, writers
from experiments.registry import open_model
from folnet import FOLNetForCausalLM, generate, generate_from
from folnet.tokenization import WordPieceTokenizer
from tests.experiments.exporting.test_models import compare, exported
from tests.folnet import small, small_decoders

pytestmark = pytest.mark.usefixtures("compiled_quickly")
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "##s"]
TOKENIZER = WordPieceTokenizer(
    [*VOCABULARY, *map(str, range(10, 10 + small_decoders.VOCAB - len(VOCABULARY)))]
)
TEXTS = ["the cat", "dogs 10 11 the cats"]


def test_the_function_of_a_writer_gives_what_a_text_gives_alone():
    """Without its prompt, although it is padded to the length of another."""
    model, params = small_decoders.causal()
    exportable = writers.of_writer(model, params, TOKENIZER, 4)
    ids = np.array([[2, 6, 7, 8, 5], [2, 5, 0, 0, 0]], np.int32)
    found = jax.jit(exportable.function)(params, {"input_ids": ids, "attention_mask": ids > 0})
    assert found["tokens"].shape == (2, 4)
    alone = generate(
        model, params, jnp.asarray(ids[1:, :2]), max_new_tokens=4, pad_token_id=0, eos_token_id=3,
        allowed=writers.words_of(model, TOKENIZER),
    )  # fmt: skip
    np.testing.assert_array_equal(found["tokens"][1], alone.sequences[0, 2:])
    assert found["count"][1] == alone.lengths[0] - 2


def test_the_function_of_an_encoder_decoder_is_greedy_generation():
    """It starts with [CLS], which is no part of the answer, and ends with [SEP]."""
    model, params = small_decoders.conditional()
    exportable = writers.of_writer(model, params, TOKENIZER, 4)
    ids = np.array([[2, 6, 7, 3], [2, 5, 3, 0]], np.int32)
    found = jax.jit(exportable.function)(params, {"input_ids": ids, "attention_mask": ids > 0})
    wanted = generate_from(
        model, params, jnp.asarray(ids), attention_mask=jnp.asarray(ids > 0), decoder_start_token_id=2,
        max_new_tokens=4, pad_token_id=0, eos_token_id=3, allowed=writers.words_of(model, TOKENIZER),
    )  # fmt: skip
    np.testing.assert_array_equal(found["tokens"], wanted.sequences[:, 1:])
    np.testing.assert_array_equal(found["count"], wanted.lengths - 1)


@pytest.mark.parametrize("build", [small_decoders.causal, small_decoders.conditional])
def test_only_words_are_written(build):
    """Nor [PAD], [CLS] and [MASK], nor what the word table has more of, however likely they are."""
    model, params = build("j.")
    never = [0, 2, 4, *range(len(VOCABULARY), small_decoders.VOCAB)]
    table = 0.01 * np.asarray(params["folnet"]["embeddings"]["word"])
    table[never] = table[5] * 1000 * (-1) ** np.arange(len(never))[:, None]  # some have the greatest logit
    embeddings = params["folnet"]["embeddings"] | {"word": jnp.asarray(table)}
    params = params | {"folnet": params["folnet"] | {"embeddings": embeddings}}
    exportable = writers.of_writer(model, params, WordPieceTokenizer(VOCABULARY), 3)
    ids = np.array([[2, 6, 7], [2, 5, 0]], np.int32)
    found = jax.jit(exportable.function)(params, {"input_ids": ids, "attention_mask": ids > 0})
    for row, count in zip(np.asarray(found["tokens"]), np.asarray(found["count"]), strict=True):
        assert not np.isin(row[:count], never).any()


@pytest.mark.parametrize(
    ("positions", "absolute", "lengths", "longest"),
    [(500, True, 128, 497), (20, True, 17, 17), (20, False, 128, None)],
)
def test_lengths_are_those_that_positions_leave_room_for(positions, absolute, lengths, longest):
    config = small.config(max_position_embeddings=positions, absolute_position=absolute)
    exportable = writers.of_writer(FOLNetForCausalLM(config), {}, TOKENIZER, 4)
    assert (exportable.lengths, exportable.longest) == ((lengths,), longest)


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_folder_keeps_its_casing(lowercase, tmp_path):
    """As its tokenizer's settings say; without them text is lowercased."""
    model, params = small_decoders.causal()
    model.save_pretrained(tmp_path, params)
    tokenizer = WordPieceTokenizer(TOKENIZER.vocabulary, lowercase=lowercase)
    tokenizer.save_pretrained(tmp_path)
    text = open_model(tmp_path).text
    assert text is not None
    assert text["lowercase"] == lowercase
    tokenizer.save(tmp_path / "vocab.txt")
    (tmp_path / "tokenizer_config.json").unlink()
    assert (open_model(tmp_path).text or {})["lowercase"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["causal", "conditional"])
def test_it_writes_what_the_live_model_writes(name, tmp_path):
    model, params = getattr(small_decoders, name)()
    model.save_pretrained(tmp_path / "saved", params)
    TOKENIZER.save(tmp_path / "saved" / "vocab.txt")
    exportable = open_model(tmp_path / "saved", new_tokens=5)
    loaded = exported(exportable, tmp_path, Options(lengths=(9,)))
    codec = loaded.text
    assert isinstance(codec, run_exported.WordPieces)
    inputs = codec.encode(TEXTS)
    compare(exportable, loaded, {key: array[:, :9] for key, array in inputs.items()})
    ids, mask = map(jnp.asarray, (inputs["input_ids"], inputs["attention_mask"]))
    options: dict[str, Any] = {
        "max_new_tokens": 5,
        "pad_token_id": 0,
        "eos_token_id": 3,
        "attention_mask": mask,
        "allowed": writers.words_of(model, TOKENIZER),
    }
    if name == "causal":
        lengths = mask.sum(1)
        assert all(row[length - 1] != 3 for row, length in zip(ids, lengths, strict=True))
        found = generate(model, params, ids, **options)
        new = [row[length:] for row, length in zip(found.sequences, lengths, strict=True)]
    else:
        new = generate_from(model, params, ids, decoder_start_token_id=2, **options).sequences[:, 1:]
    answers = run_exported.answer(loaded, {"text": TEXTS})["answers"]
    assert [answer["text"] for answer in answers] == [codec.join(row.tolist()) for row in new]
    with pytest.raises(run_exported.Refused, match="this model reads no pairs"):
        run_exported.answer(loaded, {"text": "the", "pair": "cat"})
    with pytest.raises(ValueError, match="derivative: got True, expected False for this writer"):
        export_model(exportable, tmp_path / "m.jaxmodel", Options(derivative=True))


def test_pieces_are_joined_to_words_up_to_the_end():
    settings = {"vocabulary": VOCABULARY, "lowercase": True, "fills": None}
    codec = run_exported.WordPieces(settings)
    assert codec.join([8, 6, 8, 5, 7, 8, 8, 3, 6]) == "##s cats the dogss"
    assert codec.join([6, 0, 6]) == "cat"
    assert codec.join([3]) == ""
    assert codec.join([99, 6]) == codec.join([9, 6]) == "[UNK] cat"


def test_a_vocabulary_and_room_are_needed():
    model = writers.FOLNetForCausalLM(
        small_decoders.small.config(absolute_position=True, max_position_embeddings=12)
    )
    with pytest.raises(ValueError, match=r"tokenizer: got None, expected a vocab.txt"):
        writers.of_writer(model, {}, None, 5)
    for count in (0, 13):
        with pytest.raises(ValueError, match=f"new_tokens: got {count}, expected 1 to 12, the model's"):
            writers.of_writer(model, {}, TOKENIZER, count)
    for count, longest in ((1, 12), (5, 8), (12, 1)):
        exportable = writers.of_writer(model, {}, TOKENIZER, count)
        assert (exportable.longest, exportable.lengths) == (longest, (longest,))
