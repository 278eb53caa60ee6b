"""The pages under docs/: links lead somewhere, every name is documented, and what they tell to type works."""

import ast
import functools
import importlib
import importlib.util
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
MARKDOWN = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
PAGES = (
    "experiments",
    "weights",
    "how_to/export",
    "how_to/kernels",
    "how_to/many_devices",
    "how_to/performance",
    "how_to/reasoning_suite",
    "how_to/resume",
    "how_to/your_data",
    "how_to/your_model",
    "papers/folnet",
    "papers/kernels",
    "papers/llrnn",
    "papers/simplicial",
    "papers/tp_transformer",
)
"""Pages whose commands are run here, from the first to the last, in one directory."""
PACKAGES = ("kernels", "simplicial", "tp_transformer", "folnet", "llrnn")
HELPERS = {"simplicial.checks", "folnet.parameters", "folnet.prepared"}
"""Modules of papers' packages that only the package itself uses."""
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|!?\[[^\]]*\](?:\([^)]*\))?)*\]\(([^)\s]+)\)")
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
DIRECTIVE = re.compile(r"^::: (\S+)\n(?:    options: (\{.*\})\n)?", re.MULTILINE)


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def blocks(name: str) -> list[tuple[str, str]]:
    """The language and the text of each block that is to be run."""
    return re.findall(r"^```(bash|python)\n(.*?)^```$", page(name), re.DOTALL | re.MULTILINE)


@functools.cache
def directives() -> dict[str, dict[str, dict]]:
    """Per page of the API reference, the objects that mkdocstrings is asked for, with their options."""
    found = {}
    for path in sorted((DOCS / "api").glob("*.md")):
        text = path.read_text(encoding="utf-8") + "\n"
        named = {match[1]: yaml.safe_load(match[2] or "{}") for match in DIRECTIVE.finditer(text)}
        assert len(named) == text.count("\n::: "), f"{path}: an object twice, or options in another form"
        found[path.name] = named
    return found


@functools.cache
def definitions(module: str) -> dict[str, ast.stmt]:
    """The public names that a module's file defines, but imports nothing of."""
    path = importlib.import_module(module).__file__
    assert path is not None
    found: dict[str, ast.stmt] = {}
    for node in ast.parse(Path(path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            found |= dict.fromkeys((name.id for name in names), node)
    return {name: node for name, node in found.items() if not name.startswith("_")}


def origin(module: str, name: str) -> str | None:
    """The path under which a name of a module is defined; None for a module."""
    path = importlib.import_module(module).__file__
    assert path is not None
    for node in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    # A package and a function may share a name, as `kernels.trans`; one imported from the
                    # module itself is a module.
                    return None if node.module == module else origin(node.module, alias.name)
    return f"{module}.{name}"


def functions_and_classes(module: str) -> set[str]:
    kinds = ast.FunctionDef | ast.ClassDef
    return {f"{module}.{name}" for name, node in definitions(module).items() if isinstance(node, kinds)}


def public() -> set[str]:
    """Every name that is listed in an `__all__`, and what the modules of the papers' packages define."""
    found: set[str] = set()
    for root in (*PACKAGES, "experiments.runtime"):
        package = importlib.import_module(root)
        papers = root not in ("kernels", "experiments.runtime")
        inside = pkgutil.walk_packages(package.__path__, f"{root}.") if papers else ()
        for name in (root, *(each.name for each in inside)):
            for listed in getattr(importlib.import_module(name), "__all__", ()):
                path = origin(name, listed)
                found |= {path} if path else functions_and_classes(f"{name}.{listed}")
        if papers:
            for each in pkgutil.iter_modules(package.__path__, f"{root}."):
                if not each.ispkg and each.name not in HELPERS:
                    found |= functions_and_classes(each.name)
    return found


@functools.cache
def documented() -> dict[str, str]:
    """Every name that the API reference shows, and the page."""
    found: dict[str, str] = {}
    for name, named in directives().items():
        for path, options in named.items():
            found[path] = name
            if (ROOT / Path(*path.split("."))).with_suffix(".py").exists() or options.get("members"):
                shown = options.get("members", definitions(path))
                found |= {f"{path}.{member}": name for member in shown or ()}
    return found


def test_every_public_name_is_in_the_api_reference():
    names = public()
    assert len(names) > 400
    assert names >= {"kernels.trans.api.trans", "llrnn.logic.kets.counit", "simplicial.boxworld.rules.LEFT"}
    assert sorted(names - documented().keys()) == []


def test_names_of_the_api_reference_exist_and_have_docstrings():
    for path in documented():
        module, _, name = path.rpartition(".")
        if (ROOT / Path(*path.split("."))).is_dir() or (ROOT / Path(*path.split("."))).with_suffix(
            ".py"
        ).exists():
            assert importlib.import_module(path).__doc__, path
            continue
        node = definitions(module)[name]
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            assert ast.get_docstring(node), path


def anchors(path: Path) -> set[str]:
    """The anchors of a page: its headings, and the names that mkdocstrings shows on it."""
    found = {name for name, where in documented().items() if path == DOCS / "api" / where}
    for heading in re.findall(r"^#+ (.*)$", CODE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE):
        slug = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
        found.add(re.sub(r"[-\s]+", "-", slug))
    return found


def leads_somewhere(source: Path, target: str) -> bool:
    file, _, anchor = target.partition("#")
    path = (source.parent / file).resolve() if file else source
    if path.parent == DOCS / "tutorials" and path.suffix == ".md" and path.name != "index.md":
        return (ROOT / "examples" / path.with_suffix(".py").name).exists() and not anchor
    return path.exists() and (not anchor or anchor in anchors(path))


@pytest.mark.parametrize("name", MARKDOWN)
def test_links_lead_somewhere(name):
    text = CODE.sub("", (DOCS / name).read_text(encoding="utf-8"))
    targets = [target for target in LINK.findall(text) + PICTURE.findall(text) if "://" not in target]
    assert [target for target in targets if not leads_somewhere(DOCS / name, target)] == []


def test_a_broken_link_is_found():
    source = DOCS / "index.md"
    assert LINK.findall("[a](b.md#c) [`d`](e.md) [![f](g.png)](h.md)") == ["b.md#c", "e.md", "h.md"]
    assert leads_somewhere(source, "how_to/kernels.md#what-a-call-costs")
    assert leads_somewhere(source, "api/kernels.md#kernels.trans.api.trans")
    for target in ("missing.md", "how_to/kernels.md#missing", "api/kernels.md#kernels.missing"):
        assert not leads_somewhere(source, target)


def test_every_page_is_in_the_navigation():
    """Pages made from examples too; `mkdocs build --strict` sees that the navigation's pages exist."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    scripts = [f"tutorials/{path.stem}.md" for path in (ROOT / "examples").glob("[a-z]*.py")]
    assert len(scripts) >= 4
    assert [name for name in (*MARKDOWN, *scripts) if f" {name}\n" not in text] == []


def test_files_named_on_the_pages_exist():
    named = {
        name
        for path in MARKDOWN
        for name in re.findall(
            r"`((?:llrnn|simplicial|tp_transformer|folnet|kernels|examples|experiments|benchmarks)/[\w/.]+\.\w+)`",
            (DOCS / path).read_text(encoding="utf-8"),
        )
    }
    named = {name for name in named if "/NAME/" not in name}
    assert len(named) > 20
    rooms = [ROOT, ROOT / "experiments"]
    assert [name for name in named if not any((room / name).exists() for room in rooms)] == []


def test_nothing_is_fetched_from_other_hosts():
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false" in settings
    assert "://" not in settings
    assert "@import" not in (DOCS / "stylesheets" / "site.css").read_text(encoding="utf-8")


def test_costs_of_kernels_are_those_measured():
    rows = json.loads((ROOT / "results" / "kernels" / "cpu.json").read_text(encoding="utf-8"))["rows"]
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        for path, measured in row["paths"].items():
            call = f"`{row['operation']}`, {row['case'].removesuffix(' float32')}"
            text = f"{1e3 * measured['seconds']:.1f} ms, {measured['temporary_bytes'] / 1e6:.1f} MB"
            cells.setdefault((call, "ours" if path == "xla" else path), {})[row["direction"]] = text
    expected = [f"| {' | '.join(key)} | {cell['forward']} | {cell['both']} |" for key, cell in cells.items()]
    shown = re.findall(r"^\| `\w+`, .* MB \|$", page("how_to/kernels"), re.MULTILINE)
    assert len(shown) > 10
    assert shown == expected, "docs/how_to/kernels.md: copy the rows of this error"


def tutorials():
    spec = importlib.util.spec_from_file_location("tutorials", DOCS / "building" / "tutorials.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_a_notebook_has_the_code_of_its_script(script):
    """All of it but the call at the end, in cells that are complete statements."""
    made = tutorials().pages(script, execute=False)
    notebook = json.loads(made[f"{script.stem}.ipynb"])
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    *statements, call, pictures = [ast.parse(cell) for cell in code]
    _, *body, guard = ast.parse(script.read_text(encoding="utf-8")).body
    found = [ast.dump(node) for cell in statements for node in cell.body]
    assert found == [ast.dump(node) for node in body]
    assert isinstance(guard, ast.If)
    assert "main(" in ast.unparse(call)
    assert "Image" in ast.unparse(pictures)
    for text in code[:-2]:
        assert text in made[f"{script.stem}.md"]
    headings = re.findall(r"^#+ .*", CODE.sub("", made[f"{script.stem}.md"]), re.MULTILINE)
    assert headings[0].startswith("# ")
    assert len(headings) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_every_command_runs(name, tmp_path):
    for folder in ("results", "experiments"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": paths, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    for language, text in blocks(name):
        command = (
            [sys.executable, "-c", text] if language == "python" else ["bash", "-euo", "pipefail", "-c", text]
        )
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=400
        )
        # The guard ends with 1 exactly if it reports a tree that is slower, as either may be beside others.
        slower = "benchmarks.guard" in text and "times as fast: slower" in done.stdout
        assert done.returncode == slower, f"{text}\n{done.stderr}"
        assert '"error"' not in done.stdout, done.stdout
    if name == "how_to/performance":
        assert json.loads((tmp_path / "guard.json").read_text())["runs"]
    if name == "how_to/export":
        with np.load(tmp_path / "answers.npz") as answers:
            assert answers["logits"].shape == (1000, 4)
        written = {path.name for path in tmp_path.rglob("*.jaxmodel")}
        assert written == {"agent.jaxmodel", "quick_simplicial.jaxmodel", "pod.jaxmodel"}
