"""Model cards: what a folder for `from_pretrained` is and how to open it, in Markdown, as hubs show it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from logic_zoo.writing import write_whole

FILE = "README.md"


def written(
    model: Any,
    pipeline: str,
    title: str,
    made: str,
    tables: Mapping[str, Mapping[str, str]],
    notes: Sequence[str] = (),
    *,
    in_pytorch: bool = True,
) -> str:
    """Returns a card, with the settings that hubs read at its start.

    Args:
        model: the flax module.
        pipeline: the task's name on hubs and in `transformers`; "" if it has none.
        title: the heading.
        made: how the parameters were made, the end of a sentence about the model.
        tables: rows by the heading of each table; a heading that ends with ":" is a line above its table.
        notes: paragraphs before the tables.
        in_pytorch: whether `transformers` opens the folder.
    """
    name = type(model).__name__
    lines = [
        "---",
        f"library_name: {'transformers' if in_pytorch else 'flax'}",
        *([f"pipeline_tag: {pipeline}"] if pipeline else []),
        "tags: [folnet, jax, flax]",
        "---",
        "",
        f"# {title}",
        "",
        f"`{name}` of [FOLNet](https://arxiv.org/abs/2302.09458), {made}",
        "",
        "```python",
        f"from folnet import {name}",
        "from folnet.tokenization import WordPieceTokenizer",
        "",
        f'model, params = {name}.from_pretrained("FOLDER")  # or "user/name" on a hub',
        'tokenizer = WordPieceTokenizer.from_pretrained("FOLDER")',
        "```",
        "",
    ]
    if in_pytorch and pipeline:
        lines += [
            "```python",
            "from transformers import pipeline  # PyTorch",
            "",
            f'answer = pipeline("{pipeline}", model="FOLDER", trust_remote_code=True)',
            "```",
            "",
        ]
    for note in notes:
        lines += [note, ""]
    for heading, rows in tables.items():
        above = heading.endswith(":")
        lines += [*([heading, ""] if above else []), f"| {'measure' if above else heading} | |", "|---|---|"]
        lines += [*(f"| {key} | {value} |" for key, value in rows.items()), ""]
    lines.append("Limitations, intended use and licence: to be written by who publishes it.")
    return "\n".join(lines) + "\n"


def write(directory: Path | str, text: str) -> None:
    """Writes a card to a folder, unless the folder has one, which its owner may have written."""
    path = Path(directory) / FILE
    if not path.exists():
        write_whole(path, text)
