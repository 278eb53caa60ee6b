"""Turns a script of examples/ into a page and a notebook.

A script is divided into cells by lines `# %%` (code) and `# %% [markdown]` (text in comments), as editors do.
Its docstring is the first text; the last cell calls `main`. All output comes from this call, so executing a
tutorial means running the script once.
"""

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = "build/tutorials"


def cells(source: str) -> list[tuple[str, str]]:
    """Returns the cells of a script, each "markdown" or "code" with its text; the docstring is the first."""
    docstring = ast.parse(source).body[0]
    text = ast.get_docstring(ast.parse(source))
    rest = "\n".join(source.splitlines()[docstring.end_lineno :])
    rest = re.sub(r'\n+if __name__ == "__main__":\n    main\(\)\n*$', "\n", rest)
    found = [("markdown", text)]
    for part in re.split(r"^# %%", f"\n{rest}", flags=re.MULTILINE):
        kind, text = "code", part
        if part.startswith(" [markdown]"):
            lines = part.removeprefix(" [markdown]").strip("\n").splitlines()
            prose = [line for line in lines if line.startswith("#")]
            found.append(("markdown", "\n".join(line.removeprefix("#").removeprefix(" ") for line in prose)))
            text = "\n".join(lines[len(prose) :])
        if text.strip():
            found.append((kind, text.strip("\n")))
    return found


def title(text: str) -> tuple[str, str]:
    """Splits a docstring into its first sentence, a heading, and the rest."""
    first, rest = re.match(r"(.+?[.?])(\s.*|$)", text, re.DOTALL).groups()
    return " ".join(first.split()).rstrip("."), rest.strip()


def run(script: Path) -> tuple[str, dict[str, bytes]]:
    """Returns what a script prints, and its pictures by name; runs it only if the code has changed."""
    packages = ("kernels", "simplicial", "tp_transformer", "folnet", "llrnn", "examples")
    digest = hashlib.sha256()
    for path in sorted(path for package in packages for path in (ROOT / package).rglob("*.py")):
        if path.parent.name != "examples" or path == script:
            digest.update(path.read_bytes())
    out = ROOT / KEPT / script.stem
    kept = out / f"{digest.hexdigest()[:16]}.txt"
    if not kept.exists():
        out.mkdir(parents=True, exist_ok=True)
        print(f"running {script.name}", flush=True)
        done = subprocess.run(
            [sys.executable, str(script), f"--out={out}"],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{script.name}: exit status {done.returncode}\n{done.stderr}")
        text = done.stdout.replace(str(out), f"out/{script.stem}")
        kept.write_text(text, encoding="utf-8")
    return kept.read_text(encoding="utf-8"), {
        path.name: path.read_bytes() for path in sorted(out.glob("*.png"))
    }


def pages(script: Path, *, execute: bool) -> dict[str, str | bytes]:
    """Returns the page, the notebook and the pictures of a script, by name."""
    name = script.stem
    (_, docstring), *others = cells(script.read_text(encoding="utf-8"))
    heading, introduction = title(docstring)
    call = f'numbers = main(["--out=out/{name}"])'
    printed, pictures = run(script) if execute else ("", {})

    download = f"[Notebook]({name}.ipynb) · the same code as a script: `examples/{name}.py`"
    page = [f"# {heading}", download, introduction]
    notebook = [_cell("markdown", f"# {heading}\n\n{introduction}")]
    for kind, text in others:
        page.append(text if kind == "markdown" else f"```python\n{text}\n```")
        notebook.append(_cell(kind, text))
    page += ["## Run it", f"```python\n{call}\n```"]
    notebook += [_cell("markdown", "## Run it"), _cell("code", call)]
    if execute:
        page += [
            f"```text\n{printed.rstrip()}\n```",
            *(f"![{name}]({name}/{picture})" for picture in pictures),
        ]
        stream = {"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)}
        notebook[-1]["outputs"] = [stream]
    shown = (
        f'from IPython.display import Image, display\n\nfor picture in Path("out/{name}").glob("*.png"):\n'
    )
    notebook.append(_cell("code", f"{shown}    display(Image(filename=picture))"))
    for number, cell in enumerate(notebook):
        cell["id"] = f"cell-{number}"
    whole = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"language_info": {"name": "python"}}}
    return {
        f"{name}.md": "\n\n".join(page) + "\n",
        f"{name}.ipynb": json.dumps({**whole, "cells": notebook}, indent=1),
        **{f"{name}/{picture}": content for picture, content in pictures.items()},
    }


def _cell(kind: str, text: str) -> dict:
    cell = {"cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True)}
    return cell if kind == "markdown" else {**cell, "execution_count": None, "outputs": []}
