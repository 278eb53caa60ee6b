"""Model cards: what a folder for `from_pretrained` is and how to open it, in Markdown, as hubs show it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from folnet import pretrained
from logic_zoo.writing import write_whole

FILE = "README.md"
PIPELINES = ("fill-mask", "text-classification", "text-generation", "token-classification")
"""Tasks of hubs that are pipelines of `transformers` 5, too; it has none for spans, and none for targets."""


def written(
    model: Any,
    pipeline: str,
    title: str,
    made: str,
    tables: Mapping[str, Mapping[str, str]],
    notes: Sequence[str] = (),
) -> str:
    """Returns a card, with the settings that hubs read at its start.

    Args:
        model: the flax module, of a class that PyTorch opens, too.
        pipeline: the task's name on hubs; "" if it has none.
        title: the heading.
        made: how the parameters were made, the end of a sentence about the model.
        tables: rows by the heading of each table; a heading that ends with ":" is a line above its table.
        notes: paragraphs before the tables.
    """
    name = type(model).__name__
    auto = next(key for key, of in pretrained.AUTO_MAP.items() if of.endswith(f".{name}"))
    lines = [
        "---",
        "library_name: transformers",
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
        "```python",
    ]
    if pipeline in PIPELINES:
        lines += [
            "from transformers import pipeline  # PyTorch",
            "",
            f'answer = pipeline("{pipeline}", model="FOLDER", trust_remote_code=True)',
        ]
    else:
        lines += [
            f"from transformers import {auto}, AutoTokenizer  # PyTorch",
            "",
            f'model = {auto}.from_pretrained("FOLDER", trust_remote_code=True)',
            'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
        ]
    lines += ["```", ""]
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
