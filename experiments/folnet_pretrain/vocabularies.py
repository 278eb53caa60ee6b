"""The vocabulary of a run: kept in its directory, checked when it continues, read with its model."""

from collections.abc import Callable
from pathlib import Path

from experiments.runtime import processes
from experiments.runtime.workdir import read_json
from folnet.tokenization import WordPieceTokenizer

FILE = ".vocab.txt"
"""Its name; hidden, so that a workdir with nothing else still counts as empty."""
FINGERPRINT = "vocabulary"
"""The name of its fingerprint in the results of a run."""


def keep(tokenizer: WordPieceTokenizer, workdir: Path) -> None:
    """Writes the vocabulary; raises ValueError if the workdir has a different one."""
    path = workdir / FILE
    if path.exists():
        begun = WordPieceTokenizer.load(path, lowercase=tokenizer.lowercase)
        if begun.fingerprint != tokenizer.fingerprint:
            raise ValueError(
                f"{workdir}: got vocabulary {tokenizer.fingerprint} from the text, expected "
                f"{begun.fingerprint} as at the start of this run: the text has changed; choose another "
                "workdir"
            )
        return
    workdir.mkdir(parents=True, exist_ok=True)
    tokenizer.save(path)


def settle(tokenizer: WordPieceTokenizer, rows: int, workdir: Path | None) -> None:
    """Checks that the vocabulary fits the model's word embeddings, and keeps it; see `keep`.

    Raises:
        ValueError: it does not fit, or the workdir has a different one.
    """
    check_rows(tokenizer, rows)
    if workdir is not None:
        processes.first_before_others(lambda: keep(tokenizer, Path(workdir)), ValueError)


def read(
    folder: Path, lowercase: bool, learned: Callable[[], WordPieceTokenizer], also: Path | None = None
) -> WordPieceTokenizer:
    """Returns a run's tokenizer; for a released folder, learns it again and compares fingerprints.

    Args:
        folder: of the run, or a released one.
        lowercase: whether it lowercases text.
        learned: learns it from the run's text.
        also: another folder that may have it.

    Raises:
        ValueError: the vocabulary is missing and cannot be learned again.
    """
    for kept in (place / FILE for place in (folder, also) if place is not None):
        if kept.is_file():
            return WordPieceTokenizer.load(kept, lowercase=lowercase)
    tokenizer = learned()
    summary = folder / "summary.json"
    if not summary.is_file():
        return tokenizer
    wanted = read_json(summary).get("results", {}).get(FINGERPRINT)
    if wanted != tokenizer.fingerprint:
        raise ValueError(
            f"{folder}: got vocabulary {tokenizer.fingerprint} from the text, expected {wanted} as in "
            "training: the text has changed since"
        )
    return tokenizer


def check_rows(tokenizer: WordPieceTokenizer, rows: int) -> None:
    """Raises ValueError if the vocabulary is larger than the model's word embeddings."""
    pieces = tokenizer.vocab_size
    if pieces > rows:
        raise ValueError(
            f"model.vocab_size: got {rows}, expected at least {pieces}, the size of the vocabulary, such as "
            f"the multiple of 8 {tokenizer.padded_vocab_size}"
        )
