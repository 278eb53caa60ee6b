"""Rows of text and of pairs, batches as a function of the step, and files that do not fit."""

import dataclasses
import json

import numpy as np
import pytest

from experiments.folnet_language import data
from experiments.folnet_language.data import Batches, PairRows, TextRows, in_order
from folnet.tasks.pairs import Pair
from folnet.tokenization import WordPieceTokenizer
from tests.experiments.folnet_language.small import small, with_data, write_pairs
from tests.experiments.folnet_pretrain.small import write_text

TOKENIZER = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"])


def test_rows_of_text_end_where_their_documents_do(tmp_path):
    """Together they are the document, each token once; labels are the tokens themselves."""
    path = tmp_path / "text.txt"
    documents = ["a b c a b", "c " * 17 + "a", "b b", "c a"]
    path.write_text("\n\n".join(documents), encoding="utf-8")
    config = with_data(path, packing="document", held_out=0.3, new_vocabulary=20)
    opened = config.data.open_rows()
    tokenizer = opened.tokenizer
    read = {}
    for rows in (opened.train, opened.held_out):
        assert isinstance(rows, TextRows)
        found = rows.take(range(len(rows)))
        np.testing.assert_array_equal(
            found["labels"], np.where(found["input_ids"] == tokenizer.pad_id, -1, found["input_ids"])
        )
        texts: list[list[int]] = [[]]
        for ids in found["input_ids"].tolist():
            assert ids[0] == tokenizer.cls_id
            texts[-1] += [word for word in ids[1:] if word != tokenizer.pad_id]
            if texts[-1][-1] == tokenizer.sep_id:
                texts.append([])
        assert texts.pop() == []
        read |= {tokenizer.decode(text): len(text) for text in texts}
    assert read == {text.strip(): len(text.split()) + 1 for text in documents}


def test_packed_rows_are_full(tmp_path):
    opened = small(write_text(tmp_path)).data.open_rows()
    found = opened.train.take(range(len(opened.train)))["input_ids"]
    assert (found[:-1] != opened.tokenizer.pad_id).all()
    assert (found == opened.tokenizer.sep_id).any()  # between documents


def test_rows_of_pairs():
    pairs = [Pair("a b c", "c b"), Pair("b", "a b c a b")]
    rows = PairRows(pairs, TOKENIZER, 4, 4)
    found = rows.take([1, 0])
    assert {name: array.tolist() for name, array in found.items()} == {
        "input_ids": [[2, 6, 3, 0], [2, 5, 6, 3]],
        "attention_mask": [[True, True, True, False], [True] * 4],
        "decoder_input_ids": [[2, 5, 6, 7], [2, 7, 6, 0]],
        "labels": [[5, 6, 7, 5], [7, 6, 3, -1]],
    }
    assert rows.truncated == {"inputs": 1, "targets": 1}
    assert len(rows) == 2
    several = [Pair("a b", "a b c"), Pair("a b c", "a b c a"), Pair("a b c a", "a b c a b")]
    assert PairRows(several, TOKENIZER, 4, 4).truncated == {"inputs": 2, "targets": 2}


def test_batches_are_a_function_of_the_step_and_the_process():
    rows = PairRows([Pair("a", "b")] * 5, TOKENIZER, 4, 4)
    rows._arrays = {"labels": np.arange(5)[:, None]}
    batches = Batches(rows, 2, seed=3)
    epoch = np.concatenate([batches(step)["labels"][:, 0] for step in range(5)])
    assert sorted(epoch[:5]) == sorted(epoch[5:]) == [0, 1, 2, 3, 4]
    assert epoch[:5].tolist() != epoch[5:].tolist()
    np.testing.assert_array_equal(batches(1)["labels"], Batches(rows, 2, seed=3)(1)["labels"])
    assert any((Batches(rows, 2, seed=4)(n)["labels"] != batches(n)["labels"]).any() for n in range(5))
    halves = [Batches(rows, 4, seed=3, process=number, processes=2)(1)["labels"] for number in (0, 1)]
    np.testing.assert_array_equal(np.concatenate(halves), Batches(rows, 4, seed=3)(1)["labels"])
    with pytest.raises(ValueError, match="batch_size: got 3, expected a multiple of 2 processes"):
        Batches(rows, 3, seed=3, processes=2)


@pytest.mark.parametrize(("most", "wanted"), [(0, [0, 1, 2, 3, 4]), (1, [0, 2]), (9, [0, 1, 2, 3, 4])])
def test_rows_in_order_once(most, wanted):
    rows = PairRows([Pair("a", letter) for letter in "abcab"], TOKENIZER, 4, 4)
    rows._arrays |= {"input_ids": np.arange(5)[:, None]}
    batches = list(in_order(rows, 2, most))
    assert {len(batch["labels"]) for batch in batches} == {2}
    ids, labels = (np.concatenate([batch[name] for batch in batches]) for name in ("input_ids", "labels"))
    real = labels[:, 0] != -1
    assert ids[real, 0].tolist() == wanted
    assert (labels[~real] == -1).all()


def test_a_file_of_its_own_to_measure_with(tmp_path):
    source, other = write_pairs(tmp_path), tmp_path / "other.csv"
    other.write_text("question,answer\nthe cat,cat\n", encoding="utf-8")
    config = with_data(source, validation=str(other))
    opened = config.data.open_rows()
    assert (len(opened.train), len(opened.held_out)) == (48, 1)
    held_out = opened.held_out
    assert isinstance(held_out, PairRows)
    assert held_out.pairs == [Pair("the cat", "cat")]
    turned = with_data(other, validation=str(other), input="answer", target="question").data.open_rows()
    for rows in (turned.train, turned.held_out):
        assert isinstance(rows, PairRows)
        assert rows.pairs == [Pair("cat", "the cat")]


def test_held_out_pairs_share_no_input_with_the_others(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"input": f"a {n % 10}", "target": f"b {n}"} for n in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    train, held_out = data.read_pairs(str(path), "", 0.3, "", "")
    assert len(train) + len(held_out) == 40
    assert {pair.input for pair in train}.isdisjoint({pair.input for pair in held_out})
    with pytest.raises(ValueError, match=r"data\.held_out: got 1e-09, expected .* not 40 to train on and 0"):
        data.read_pairs(str(path), "", 1e-9, "", "")


def test_a_vocabulary_can_be_given(tmp_path):
    config = with_data(write_pairs(tmp_path), vocabulary=str(tmp_path / "vocab.txt"))
    TOKENIZER.save(tmp_path / "vocab.txt")
    assert config.data.open_rows().tokenizer.fingerprint == TOKENIZER.fingerprint
    cased = WordPieceTokenizer(TOKENIZER.vocabulary, lowercase=False)
    cased.save_pretrained(tmp_path / "cased")
    within = dataclasses.replace(config.data, vocabulary=str(tmp_path / "cased"))
    with pytest.raises(ValueError, match=r"data\.lowercase: got True, expected False as in data\.vocabulary"):
        within.open_rows()
    assert dataclasses.replace(within, lowercase=False).open_rows().tokenizer.fingerprint == cased.fingerprint
