"""Adds what lies outside docs/ to the site: results, the changelog, and a tutorial per script of examples/.

mkdocs calls the functions `on_*`. Links in Markdown files are those of the repository, where they work too;
here they become links of the site.
"""

import importlib.util
import os
import posixpath
import re
import sys
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "results/**/README.md",
    "results/**/*.md",
    "results/**/*.png",
    "results/**/*.gif",
    "results/**/*.svg",
)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\]\([^)]*\))*)\]\((?P<target>[^)\s]+)\)")
CODE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)


def tutorials():
    """Returns the module next to this file; hooks of mkdocs are no package."""
    if "tutorials" not in sys.modules:
        spec = importlib.util.spec_from_file_location("tutorials", Path(__file__).with_name("tutorials.py"))
        sys.modules["tutorials"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["tutorials"])
    return sys.modules["tutorials"]


def on_files(files, config):
    """Adds files of the repository under their paths in it, and the tutorials."""
    for path in sorted({path for pattern in OUTSIDE for path in ROOT.glob(pattern)}):
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    execute = os.environ.get("EXECUTE") == "1"
    for script in sorted((ROOT / "examples").glob("[a-z]*.py")):
        for name, content in tutorials().pages(script, execute=execute).items():
            files.append(File.generated(config, f"tutorials/{name}", content=content))
    return files


def on_page_markdown(markdown, page, config, files):
    """Turns links to files of the repository into links of the site; other files become plain text."""
    source = page.file.src_uri
    where = (
        f"docs/{source}" if (ROOT / "docs" / source).exists() or source.startswith("tutorials/") else source
    )

    def replaced(match):
        if match["text"].startswith("!["):  # a picture that is a link
            match_text = LINK.sub(replaced, match["text"])
        else:
            match_text = match["text"]
        path, mark, anchor = match["target"].partition("#")
        if "://" in path or not path:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(where), path))
        name = path.removeprefix("docs/")
        if files.get_file_from_path(f"{name}/README.md"):
            name = f"{name}/README.md"
        if files.get_file_from_path(name):
            target = posixpath.relpath(name, posixpath.dirname(source) or ".")
            return f"{match['image']}[{match_text}]({target}{mark}{anchor})"
        if name.startswith(("tutorials/", "#")) or not (ROOT / path).exists():
            return match[0]  # mkdocs reports it
        return match_text

    parts, end = [], 0
    for block in CODE.finditer(markdown):
        parts += [LINK.sub(replaced, markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, LINK.sub(replaced, markdown[end:])])
