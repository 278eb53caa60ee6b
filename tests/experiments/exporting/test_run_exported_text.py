"""Text in exported models is encoded and decoded as by the tokenizers used in training."""

import types
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.exporting import run_exported
from experiments.exporting.run_exported import Refused
from experiments.mathematics import load as mathematics_load
from folnet.tokenization import WordPieceTokenizer
from tests.experiments.exporting import small as small_exports
from tp_transformer import mathematics


def test_characters_are_those_of_the_vocabulary():
    codec = run_exported.Characters(mathematics_load.describe_characters(mathematics.DEFAULT))
    questions = ["What is 2 + 2?", "", "Let a = -1/2. Is a < 0?"]
    rows = codec.encode(questions)["source"]
    np.testing.assert_array_equal(rows, mathematics.DEFAULT.encode_batch(questions))
    answers = codec.decode({}, {"tokens": rows})
    assert [answer["text"] for answer in answers] == questions
    noise = np.random.default_rng(0).integers(0, mathematics.DEFAULT.size, (20, 12))
    noise[:, 0] = mathematics.START
    answers = codec.decode({}, {"tokens": noise})
    assert [answer["text"] for answer in answers] == list(map(mathematics.DEFAULT.decode, noise))
    with pytest.raises(Refused, match="text: got 'ß', expected characters of"):
        codec.encode(["ß"])


@pytest.mark.parametrize(
    ("pair", "message"),
    [(3, "pair: got .3., expected a string or a non-empty list of strings"), ("b", "reads no pairs")],
)
def test_pairs_are_checked_before_it_is_asked_whether_they_are_read(pair, message):
    text = run_exported.Characters(mathematics_load.describe_characters(mathematics.DEFAULT))
    model: Any = types.SimpleNamespace(text=text)
    with pytest.raises(Refused, match=message):
        run_exported.answer(model, {"text": "a", "pair": pair})


@pytest.mark.parametrize("lowercase", [True, False])
def test_word_pieces_are_those_of_the_tokenizer(lowercase):
    texts = [
        *small_exports.TEXTS,
        "The  cat\tsees\nthe dogs!?",
        "Caf\u00e9 na\u00efve \u0130stanbul \u03a3\u0399\u03a3\u03a5\u03a6\u039f\u03a3 stra\u00dfe",
        "don't e-mail $5.00 (50%) `x^2` a_b <tag>",
        "\u4e2d\u6587 and \uac00\ub098 \u3042\u3044 \U0001f600",
        "zero\u200bwidth soft\u00adhyphen \ufffd\x00\x07",
        "non\u00a0breaking\u2003space \u2018quotes\u2019 \u2014 dash\u2026",
        "x" * 101 + " " + "cat" * 33,
        "x" * 100,
        "a\u4e00b\u9fffc a\u3400b\u4dbfc d\ua000e",  # the ends of blocks, and one beyond
        "",
        "[CLS] [SEP] [UNK]",
    ]
    tokenizer = WordPieceTokenizer.train([*texts, *texts], 400, lowercase=lowercase)
    settings = {"kind": "wordpieces", "vocabulary": list(tokenizer.vocabulary), "lowercase": lowercase}
    settings |= {"closes": True, "writes": None}
    names = {"ids": "input_ids", "types": "token_type_ids", "mask": "attention_mask"}
    codec = run_exported.make_text(
        {**settings, "inputs": names, "fills": None, "length": None, "masks_padding": True}
    )
    assert isinstance(codec, run_exported.WordPieces)
    assert [codec.tokens(text) for text in texts] == tokenizer.ids(texts)
    found, wanted = codec.encode(texts, texts[::-1]), tokenizer(texts, texts[::-1])
    for name, array in wanted._asdict().items():
        np.testing.assert_array_equal(found[name], array)
    masked = ["the [MASK] sees[MASK].", "[MASK]"]
    fills = run_exported.WordPieces({**settings, "fills": "prediction_logits"})
    assert [fills.tokens(text) for text in masked] == tokenizer.ids(masked, special_tokens=True)


def test_words_are_cut_and_pieces_joined_as_the_tokenizer_does():
    texts = ["the cat sees, don't you? yes!", "1.5 (no) - e-mail; a_b ... 'x'"]
    tokenizer = WordPieceTokenizer.train(texts, 60, lowercase=True)
    settings = {"kind": "wordpieces", "vocabulary": list(tokenizer.vocabulary), "lowercase": True}
    codec = run_exported.WordPieces({**settings, "fills": None})
    cut = tokenizer.ids(texts)
    assert any(tokenizer.vocabulary[number].startswith("##") for ids in cut for number in ids)
    assert list(map(codec.tokens, texts)) == cut
    drawn = np.random.default_rng(0).integers(5, tokenizer.vocab_size, (50, 20)).tolist()
    assert len(set("".join(tokenizer.decode(ids) for ids in drawn)) & set(".?!,")) == 4
    for ids in [*cut, *drawn]:
        assert codec.join(ids) == tokenizer.decode(ids)


def test_masks_are_filled_with_the_likeliest_words():
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "dog"]
    settings = {
        "vocabulary": vocabulary,
        "lowercase": True,
        "fills": "words",
        "length": 6,
        "masks_padding": False,
        "closes": True,
        "writes": None,
    }
    codec = run_exported.WordPieces({**settings, "inputs": {"ids": "ids", "types": "types", "mask": "mask"}})
    inputs = codec.encode(["the [MASK]", "[MASK] [MASK]"])
    assert inputs["ids"].tolist() == [[2, 1, 4, 3, 0, 0], [2, 4, 4, 3, 0, 0]]
    assert set(inputs) == {"ids", "types"}
    logits = np.full((2, 6, 8), -30.0, jnp.bfloat16)  # a row more than the vocabulary has
    logits[0, 2, 5:] = [1.0, 0.0, 9.0]
    first, second = codec.decode(inputs, {"words": logits, "other": np.array([1, 2])})
    assert first["masks"][0][:2] == [["cat", 0.731059], ["dog", 0.268941]]  # e / (1 + e)
    assert (len(second["masks"]), second["other"]) == (2, 2)
    assert codec.encode(["cat dog cat dog"])["ids"].tolist() == [[2, 5, 6, 5, 6, 3]]
    with pytest.raises(Refused, match="text: got 7 tokens, expected at most 6"):
        codec.encode(["cat dog cat dog cat"])


def test_the_answer_of_a_writer_is_its_text():
    """It reads no pairs, and its answers have no other outputs."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "dog"]
    codec = run_exported.WordPieces(
        {
            "vocabulary": vocabulary, "lowercase": True, "fills": None, "length": None, "writes": "tokens",
            "masks_padding": True, "closes": True, "inputs": {"ids": "ids", "types": None, "mask": "mask"},
        }
    )  # fmt: skip
    inputs = codec.encode(["cat", "dog cat"])
    assert set(inputs) == {"ids", "mask"}
    outputs = {"tokens": np.array([[5, 6, 3, 5], [6, 3, 0, 0]]), "count": np.array([3, 2])}
    assert codec.decode(inputs, outputs) == [{"text": "cat dog"}, {"text": "dog"}]
    with pytest.raises(Refused, match="pair: got a value, expected none, since this model reads no pairs"):
        codec.encode(["cat"], ["dog"])


class Lengths:
    """A model of texts and pairs that gives their lengths; it is its own codec."""

    batch_room, batch_step, manifest = None, 2, {"outputs": [{"name": "lengths", "labels": None}]}

    @property
    def text(self):
        return self

    def encode(self, texts, pairs):
        rows = [[len(text), len(pair)] for text, pair in zip(texts, pairs or [""] * len(texts), strict=True)]
        return {"lengths": np.array(rows)}

    def __call__(self, inputs):
        return inputs

    def decode(self, inputs, outputs):
        return [{"lengths": row} for row in outputs["lengths"]]


def test_a_text_has_one_answer_and_a_list_one_each():
    model: Any = Lengths()
    assert run_exported.answer(model, {"text": "abc", "id": 5}) == {"id": 5, "outputs": {"lengths": [3, 0]}}
    assert run_exported.answer(model, {"text": "abc", "pair": "d"}) == {"outputs": {"lengths": [3, 1]}}
    assert run_exported.answer(model, {"text": ["a", "", "abc"], "pair": ["", "bc", "d"]}) == {
        "answers": [{"outputs": {"lengths": row}} for row in ([1, 0], [0, 2], [3, 1])]
    }
    with pytest.raises(Refused, match="pair: got 1 strings, expected 2 as in text"):
        run_exported.answer(model, {"text": ["a", "b"], "pair": ["c"]})
    with pytest.raises(Refused, match=r"text: got .*, expected a string or a non-empty list of strings"):
        run_exported.answer(model, {"text": ["a", 3]})


def test_parts_of_files_are_multiples_of_what_devices_share(tmp_path, monkeypatch):
    """Rounded up; no call has more rows, and only the last may have fewer."""
    model: Any = Lengths()
    np.savez(tmp_path / "in.npz", lengths=np.arange(14).reshape(7, 2))
    seen, run = [], Lengths.__call__

    def watched(model, inputs):
        seen.append(len(inputs["lengths"]))
        return run(model, inputs)

    monkeypatch.setattr(Lengths, "__call__", watched)
    for batch, parts in ((3, [4, 4]), (5, [6, 2]), (100, [8])):
        assert run_exported.answer_file(model, tmp_path / "in.npz", tmp_path / "out.npz", batch) == 7
        assert seen == parts
        with np.load(tmp_path / "out.npz") as found:
            assert found["lengths"].tolist() == np.arange(14).reshape(7, 2).tolist()
        seen.clear()


def test_the_label_is_that_of_the_greatest_logit():
    model: Any = types.SimpleNamespace(
        manifest={"outputs": [{"name": "logits", "labels": ["no", "maybe", "yes"]}]}
    )
    rows = [[0.0, 1.0, 3.0], [2.0, 1.0, 0.0]]
    assert run_exported.to_json(model, {"logits": np.array(rows)}) == {
        "outputs": {"logits": rows}, "labels": {"logits": ["yes", "no"]}
    }  # fmt: skip
    assert run_exported.to_json(model, {"logits": np.array(rows[0])})["labels"] == {"logits": "yes"}
