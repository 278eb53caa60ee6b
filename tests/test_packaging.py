"""What is installed: the wheel's contents, its dependencies, and its version."""

import ast
import importlib.metadata
import re
import shutil
import sys
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import logic_zoo
from experiments import registry
from experiments.runtime import releasing
from tests.processes import run
from tests.test_house import PAPERS, imported

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("logic_zoo", "kernels", *PAPERS, "experiments")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TRANS = """
import numpy as np
from kernels import trans

logits, premise = np.random.default_rng(0).normal(size=(2, 2, 5, 5)).astype(np.float32)
weights = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
np.testing.assert_allclose(trans(logits, premise), weights @ premise, rtol=1e-4, atol=1e-5)
"""
"""Checks values of `trans` against its definition."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built without isolation, in a folder of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    run("-m", "hatchling", "build", "-t", "wheel", "-d", folder, folder=ROOT)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory):
    """A folder that contains what the wheel installs, and nothing else."""
    folder = tmp_path_factory.mktemp("site")
    shutil.unpack_archive(wheel, folder, "zip")
    return folder


# ---- contents and metadata


def test_the_wheel_has_the_packages_and_the_released_weights(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in (".py", ".typed", ".json")  # tables of measurements
    }
    released = {
        f"experiments/released/{name}/{file.name}"
        for name, folder in releasing.released().items()
        for file in folder.iterdir()
    }
    assert len(sources) > 200
    assert len(released) >= 7 * 5
    others = {name for name in names if ".dist-info/" not in name}
    assert others == sources | released


def test_the_metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    assert (metadata["Name"], metadata["Version"]) == ("logic-zoo", logic_zoo.__version__)
    assert set(metadata.get_all("Provides-Extra", ())) == set(PROJECT["optional-dependencies"])
    required = [Requirement(line) for line in metadata.get_all("Requires-Dist", ())]
    assert {each.name for each in required if each.marker is None} == {
        Requirement(line).name for line in PROJECT["dependencies"]
    }


def test_the_source_archive_builds_the_same_wheel(wheel, tmp_path):
    run("-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path, folder=ROOT)
    (archive,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    run("-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, folder=folder)
    (again,) = tmp_path.glob("*.whl")
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert citation["version"] == logic_zoo.__version__
    first = re.search(r"^## (\S+)", changelog, re.MULTILINE)
    assert first
    assert first[1] == logic_zoo.__version__
    # Transformers takes our version for that of Hugging Face's `kernels`, and uses it in this range.
    assert not (0, 18) <= tuple(map(int, logic_zoo.__version__.split(".")[:2])) < (0, 20)


def test_the_citation():
    """The fields that the format requires, and a reference per paper."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["authors"] == [{"name": "The logic-zoo developers"}]
    assert {"message", "title"} <= set(citation)
    assert len(citation["references"]) == 5
    for reference in citation["references"]:
        assert {"type", "title", "authors", "year"} <= set(reference)


# ---- dependencies


def top_level(package: str) -> set[str]:
    """The packages that a package's modules import when they are imported, without its lazy imports."""
    found = set()
    for path in (ROOT / package).rglob("*.py"):
        if not (path.parent / "__init__.py").exists():
            continue  # a file that is copied, not imported: code for PyTorch
        tree = ast.parse(path.read_text(encoding="utf-8"))
        statements = (each for each in tree.body if isinstance(each, ast.Import | ast.ImportFrom))
        found |= imported("\n".join(map(ast.unparse, statements)))
    return found - sys.stdlib_module_names - set(PACKAGES)


def test_required_is_what_kernels_and_the_papers_import():
    used = {name for package in ("logic_zoo", "kernels", *PAPERS) for name in top_level(package)}
    required = {Requirement(line).name for line in PROJECT["dependencies"]}
    assert used == {name.replace("-", "_") for name in required}


def closure(names: set[str]) -> set[str]:
    """Distributions with all their own requirements, without extras, by normalized name."""
    found: set[str] = set()
    left = {canonicalize_name(name) for name in names}
    while left:
        found.add(name := left.pop())
        try:
            lines = importlib.metadata.requires(name) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        wanted = [Requirement(line) for line in lines]
        left |= {
            canonicalize_name(each.name)
            for each in wanted
            if each.marker is None or each.marker.evaluate({"extra": ""})
        } - found
    return found


BLOCKED = """
import importlib, pkgutil, sys
blocked, site = set(sys.argv[1].split(",")), sys.argv[2]

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refusing())
for package in ("logic_zoo", "kernels", "simplicial", "tp_transformer", "folnet", "llrnn"):
    root = importlib.import_module(package)
    assert root.__file__.startswith(site), root.__file__
    for found in pkgutil.walk_packages(root.__path__, package + "."):
        if found.name != "simplicial.gymnasium_adapters":
            importlib.import_module(found.name)

def error(function):
    try:
        function()
    except ImportError as error:
        return str(error)

from folnet import prepared
from folnet.pretraining import records
from folnet.tasks import metrics
from simplicial import adapters
from tp_transformer import mathematics
expected = {
    "metrics": lambda: metrics.accuracy([1], [1]),
    "gymnasium": adapters.gymnasium_env,
    "data": mathematics.import_generator,
    "data ": lambda: prepared.open_split("nowhere", "train"),
    "data  ": lambda: records.write_records("nowhere", []),
    "experiments": lambda: importlib.import_module("experiments.runtime.launching"),
    "experiments ": lambda: importlib.import_module("experiments.runtime.plots"),
    "experiments  ": lambda: importlib.import_module("experiments.boxworld.video"),
}
for extra, function in expected.items():
    assert f"pip install 'logic-zoo[{extra.strip()}]'" in str(error(function)), (extra, error(function))
"""


@pytest.mark.slow  # what they import is compared with the list by default
def test_papers_import_nothing_else(site, tmp_path):
    """They are imported from the wheel where all other packages are blocked; errors name the extras."""
    allowed = {"logic-zoo", *closure({Requirement(line).name for line in PROJECT["dependencies"]})}
    blocked = {
        name
        for name, owners in importlib.metadata.packages_distributions().items()
        if name.isidentifier() and not {canonicalize_name(owner) for owner in owners} & allowed
    }
    assert {"grain", "sklearn", "matplotlib", "chex", "pytest", "ml_collections"} <= blocked
    run("-c", BLOCKED + TRANS, ",".join(sorted(blocked)), site, path=[site], folder=tmp_path)


def test_an_extra_is_named():
    message = r"^nobody_has_this: not installed, .*: pip install 'logic-zoo\[data\]'$"
    with (
        pytest.raises(ModuleNotFoundError, match=message) as caught,
        logic_zoo.extra("data"),
    ):
        import nobody_has_this  # noqa: F401  # pyrefly: ignore
    assert caught.value.name == "nobody_has_this"
    with pytest.raises(ImportError, match="broken"), logic_zoo.extra("data"):
        raise ImportError("broken")  # installed, so the extra would not help


def test_every_extra_that_is_named_exists():
    named = {
        extra
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for extra in re.findall(r"logic_zoo\.extra\(\"(\w+)\"\)|logic-zoo\[(\w+)\]", path.read_text("utf-8"))
    }
    flat = {name for pair in named for name in pair if name}
    assert len(flat) >= 5
    assert flat <= set(PROJECT["optional-dependencies"])


# ---- released weights by name


def test_released_models_open_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = registry.open_model("llrnn/copy")
    assert (model.kind, model.source["run"]) == ("recurrent", "llrnn/copy")
    assert registry.read_run(Path("boxworld/quick_simplicial"))[0].name == "boxworld"


def test_a_path_comes_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "llrnn" / "copy").mkdir(parents=True)
    assert releasing.find("llrnn/copy") == Path("llrnn/copy")
    with pytest.raises(ValueError, match="llrnn/copy: no trained model"):
        registry.open_model("llrnn/copy")


def test_an_unknown_name_is_reported():
    names = r"'boxworld/bridge_relational', .*'mathematics/quick'$"
    with pytest.raises(ValueError, match=rf"^weights: got 'x', expected a path or one of {names}"):
        registry.open_model("x")


def test_the_wheel_finds_its_weights(site, tmp_path):
    program = (
        "from experiments.runtime import releasing; "
        "print(*releasing.released().values(), releasing.find('kinship/jmc.atp/'), sep='\\n')"
    )
    found = run("-c", program, path=[site], folder=tmp_path).split()
    assert len(found) == len(releasing.released()) + 1
    assert all(path.startswith(str(site / "experiments" / "released")) for path in found)


# ---- fresh environments


@pytest.fixture(scope="module")
def fresh(wheel, tmp_path_factory):
    """Installs requirements into an environment that has the wheel without extras; returns its Python."""
    folder = tmp_path_factory.mktemp("fresh") / "environment"
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"

    def install(*requirements: str) -> Path:
        pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*pip, "-c", ROOT / "constraints.txt", *requirements, python=python, seconds=1200)
        return python

    install(str(wheel))
    return install


@pytest.mark.slow
def test_a_fresh_environment_without_extras(fresh, tmp_path):
    python = fresh("pip")
    run("-c", TRANS, python=python, folder=tmp_path)
    run("-c", "import simplicial, tp_transformer, folnet, llrnn.cells", python=python, folder=tmp_path)
    listed = run("-m", "pip", "list", python=python)
    assert "grain" not in listed
    assert "matplotlib" not in listed


@pytest.mark.slow
def test_a_fresh_environment_with_transformers(fresh, tmp_path):
    python = fresh("transformers")
    program = """
import warnings
warnings.simplefilter("error", UserWarning)
import simplicial, folnet, tp_transformer
from transformers.utils.import_utils import is_kernels_available
assert not is_kernels_available()  # it looks for a package `kernels`, finds ours, and compares versions
import transformers.integrations
from transformers import BertConfig, BertTokenizerFast
assert BertConfig().hidden_size == 768
"""
    run("-c", program + TRANS, python=python, folder=tmp_path)


@pytest.mark.slow
def test_a_fresh_environment_with_experiments(fresh, wheel, tmp_path):
    python = fresh(f"{wheel}[experiments]")
    flags = [
        f"--config.{field}"
        for field in ("steps=2", "log_every=1", "checkpoint_every=1", "eval_every=1", "batch_size=4")
    ]
    flags += ["--config.eval_examples=2", "--config.final_examples=2", "--config.baseline.name=none"]
    run("-m", "experiments.llrnn", "--config=copy", *flags, "--workdir=run", python=python, folder=tmp_path)
    assert (tmp_path / "run" / "summary.json").exists()
    program = """
import jax, numpy as np
from experiments.registry import open_model
model = open_model("boxworld/quick_simplicial")
inputs = {name: np.zeros((3, *given.shape[1:]), given.dtype) for name, given in model.inputs.items()}
assert model.function(model.params, inputs)["logits"].shape == (3, 4)
"""
    run("-c", program, python=python, folder=tmp_path)
    run(
        "-m", "experiments.boxworld.analysis", "--weights=boxworld/quick_simplicial", "--episodes=2",
        "--out=out", python=python, folder=tmp_path,
    )  # fmt: skip
    assert (tmp_path / "out" / "episode.gif").exists()
