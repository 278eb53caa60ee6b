"""Another distribution's package `kernels` in place of ours is reported by all packages that use ours."""

import ast
import shutil
from pathlib import Path

from tests.processes import run
from tests.test_house import PAPERS, imported

ROOT = Path(__file__).resolve().parents[2]
THEIRS = 'raise SystemExit("executed")  # importing the other package may fail, or take long\n'
IMPORTING = """
import importlib, sys, warnings
warnings.simplefilter("always")
for name in sys.argv[1:]:
    with warnings.catch_warnings(record=True) as caught:
        try:
            importlib.import_module(name)
            print("imported", *(str(warning.message) for warning in caught))
        except ImportError as error:
            print(error)
"""
USERS = ("simplicial", "tp_transformer", "folnet", "experiments")
"""The packages that use `kernels`."""


def distribution(folder: Path, name: str = "kernels", version: str = "9.9") -> None:
    """Writes the metadata of a distribution into a folder of packages."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def foreign(folder: Path) -> Path:
    """Writes a foreign package `kernels` into a folder; returns its file."""
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "__init__.py").write_text(THEIRS)
    distribution(folder)
    return folder / "kernels" / "__init__.py"


def reports(file: Path, *path: Path) -> None:
    """Checks that all users of `kernels` report the file, its distribution and the remedy."""
    lines = run("-c", IMPORTING, *USERS, path=path, folder=path[0]).splitlines()
    assert len(lines) == len(USERS)
    for line in lines:
        assert line.startswith(f"kernels: got {file} of the distribution 'kernels 9.9', expected")
        assert "pip uninstall kernels" in line
        assert "pip install --force-reinstall --no-deps logic-zoo" in line


def test_all_users_of_kernels_check_it():
    users = {package for package in (*PAPERS, "experiments") if "kernels" in imports_of(package)}
    assert users == set(USERS)
    for package in USERS:
        first = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8")).body[1]
        assert ast.unparse(first) == "import logic_zoo.own_kernels"


def imports_of(package: str) -> set[str]:
    """The packages that the modules of a package import."""
    return {
        name for path in (ROOT / package).rglob("*.py") for name in imported(path.read_text(encoding="utf-8"))
    }


def test_a_foreign_package_is_reported(tmp_path):
    file = foreign(tmp_path)
    reports(file, tmp_path, ROOT)


def installed(folder: Path) -> None:
    """Copies our packages into a folder, as an installation does."""
    for package in ("logic_zoo", "kernels", *USERS):
        shutil.copytree(ROOT / package, folder / package)


def test_a_foreign_init_in_our_folder_is_reported(tmp_path):
    installed(tmp_path)
    file = tmp_path / "kernels" / "__init__.py"
    file.write_text(THEIRS)
    distribution(tmp_path)
    reports(file, tmp_path)


def test_a_folder_that_was_left_behind_is_reported(tmp_path):
    """Uninstalling the other distribution removes our `__init__.py`, too."""
    installed(tmp_path)
    (tmp_path / "kernels" / "__init__.py").unlink()
    # -S: without this environment's packages, among which Python would find a whole `kernels`.
    line = run("-S", "-c", IMPORTING, "simplicial", path=[tmp_path], folder=tmp_path)
    assert line.startswith(f"kernels: got {tmp_path / 'kernels'}, expected the package of logic-zoo")


def test_ours_over_theirs_is_a_warning(tmp_path):
    """Ours works, and is imported; libraries that use theirs may fail."""
    distribution(tmp_path)
    names = ("logic_zoo.own_kernels", "experiments")
    first, second = run("-c", IMPORTING, *names, path=[ROOT, tmp_path], folder=tmp_path).splitlines()
    assert first.startswith("imported the distribution 'kernels 9.9' is installed, but its package is")
    assert "pip uninstall kernels" in first
    assert second == "imported"  # once


def test_ours_alone_is_no_error():
    program = "import warnings; warnings.simplefilter('error'); import logic_zoo.own_kernels"
    assert run("-c", program, path=[ROOT]) == ""
