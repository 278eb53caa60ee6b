"""A run's vocabulary: kept, checked, and learned again for a released folder."""

import json

import pytest

from experiments.folnet_pretrain import vocabularies
from folnet.tokenization import WordPieceTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ONE, OTHER = WordPieceTokenizer([*SPECIAL, "a"]), WordPieceTokenizer([*SPECIAL, "b"])


def test_it_is_kept_and_no_other_is_accepted(tmp_path):
    vocabularies.keep(ONE, tmp_path / "run")
    vocabularies.keep(ONE, tmp_path / "run")
    with pytest.raises(ValueError, match=f"got vocabulary {OTHER.fingerprint} .* expected {ONE.fingerprint}"):
        vocabularies.keep(OTHER, tmp_path / "run")
    assert vocabularies.read(tmp_path / "run", True, lambda: OTHER).fingerprint == ONE.fingerprint
    cased = WordPieceTokenizer(ONE.vocabulary, lowercase=False)
    vocabularies.keep(cased, tmp_path / "cased")
    vocabularies.keep(cased, tmp_path / "cased")
    assert not vocabularies.read(tmp_path / "cased", False, lambda: OTHER).lowercase


def test_it_may_be_in_another_folder_or_learned_again(tmp_path):
    vocabularies.keep(ONE, tmp_path / "run")
    found = vocabularies.read(tmp_path / "run" / "baseline", True, lambda: OTHER, tmp_path / "run")
    assert found.fingerprint == ONE.fingerprint
    released = tmp_path / "released"
    released.mkdir()
    assert vocabularies.read(released, True, lambda: OTHER).fingerprint == OTHER.fingerprint
    (released / "summary.json").write_text(
        json.dumps({"results": {vocabularies.FINGERPRINT: ONE.fingerprint}})
    )
    assert vocabularies.read(released, True, lambda: ONE).fingerprint == ONE.fingerprint
    with pytest.raises(ValueError, match="the text has changed since"):
        vocabularies.read(released, True, lambda: OTHER)


def test_it_must_fit_the_model():
    vocabularies.check_rows(ONE, 6)
    with pytest.raises(ValueError, match=r"model\.vocab_size: got 5, expected at least 6"):
        vocabularies.check_rows(ONE, 5)


def test_what_does_not_fit_is_not_kept(tmp_path):
    with pytest.raises(ValueError, match=r"model\.vocab_size: got 5"):
        vocabularies.settle(ONE, 5, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    vocabularies.settle(ONE, 6, None)
    vocabularies.settle(ONE, 6, tmp_path / "run")
    assert vocabularies.read(tmp_path / "run", True, lambda: OTHER).fingerprint == ONE.fingerprint
