"""The program: missing libraries are skipped, unknown names are refused, the record has its fields."""

import json
import sys
import types

import jax
import pytest

from benchmarks.peers import __main__ as program
from benchmarks.peers import libraries
from benchmarks.peers.comparing import JaxProgram
from experiments.runtime import memory

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.fixture
def run(monkeypatch):
    """Returns a function that runs the program in this process as if no peer were installed.

    The C library is not asked to keep anything.
    """
    before = jax.config.jax_default_matmul_precision
    absent = {key: _absent(library) for key, library in libraries.LIBRARIES.items()}
    monkeypatch.setattr(libraries, "LIBRARIES", absent)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "somewhere")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["peers", "--small", *arguments])
        return program.main()

    monkeypatch.setattr(memory, "keep_large_blocks", lambda limit: limit > 0)

    yield run
    jax.config.update("jax_default_matmul_precision", before)


def _absent(library):
    return libraries.Library(library.title, f"no_{library.package}", library.distribution, library.side)


def _present(monkeypatch, function):
    """Installs a library with a single function, for trans."""

    def programs(subject):
        known = {"trans": {"theirs": lambda: JaxProgram(subject, function(subject))}}
        return known.get(subject.kind, {})

    monkeypatch.setitem(sys.modules, "their_side", types.SimpleNamespace(programs=programs))
    monkeypatch.setitem(
        libraries.LIBRARIES, "torch", libraries.Library("Theirs", "numpy", "numpy", "their_side")
    )


def test_without_any_peer_it_says_so_and_ends_well(run, tmp_path, capsys):
    out = tmp_path / "deep" / "speed.json"
    assert run("--only=trans", f"--out={out}") == 0
    record = json.loads(out.read_text())
    assert record["rows"] == record["not_measured"] == []
    assert set(record["peers"]) == {library.title for library in libraries.LIBRARIES.values()}
    assert all("is not installed" in about["absent"] for about in record["peers"].values())
    assert {"date", "commit", "versions", "devices", "load", "threads", "tolerance"} <= set(record)
    assert record["kept_mib"] == 0
    with pytest.raises(SystemExit, match=r"speed\.json, which would lose its rows of .*extra 'peers'"):
        run("--only=trans", f"--out={out}", "--keep-blocks=64")
    out.unlink()
    run("--only=trans", f"--out={out}", "--keep-blocks=64")
    assert json.loads(out.read_text())["kept_mib"] == 64
    assert record["command"] == f"python -m benchmarks.peers --small --only=trans --out={out}"
    assert "torch is not installed" in capsys.readouterr().out
    assert "PyTorch: skipped, torch is not installed" in out.with_suffix(".md").read_text()


def test_unknown_names_are_refused(run, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        run("--only=tensorflow", f"--out={tmp_path}/speed.json")
    assert stopped.value.code == 2
    message = capsys.readouterr().err
    assert "--only: got 'tensorflow'" in message
    assert "tokamax" in message
    assert "FOLNet layer" in message
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", ["--blocks=0", "--block-seconds=0"])
def test_bad_numbers_are_refused(run, given):
    with pytest.raises(SystemExit) as stopped:
        run(given, "--out=")
    assert stopped.value.code == 2


def test_a_row_and_its_page(run, tmp_path, monkeypatch, capsys):
    """An installed peer is compared in both directions, for the selected subject."""
    _present(monkeypatch, lambda subject: lambda *inputs: subject.ours({}, *inputs))
    out = tmp_path / "speed.json"
    assert run("--only=trans, odd", f"--out={out}", "--blocks=2", "--block-seconds=0.001") == 0
    rows = json.loads(out.read_text())["rows"]
    assert [(row["subject"], row["direction"]) for row in rows] == [
        ("trans, odd", "forward"),
        ("trans, odd", "gradient"),
    ]
    assert all(row["peers"]["theirs"]["difference"] == 0 for row in rows)
    assert out.with_suffix(".md").read_text().count("| theirs |") == 2
    assert "times as long" in capsys.readouterr().out


def test_other_numbers_end_it_badly(run, tmp_path, monkeypatch):
    _present(monkeypatch, lambda subject: lambda kernel, premise: (premise,))
    out = tmp_path / "speed.json"
    assert run("--only=trans, odd", f"--out={out}", "--blocks=1") == 1
    assert "differ" in out.with_suffix(".md").read_text()


def test_what_the_budget_leaves_out_is_named(run, tmp_path, monkeypatch, capsys):
    _present(monkeypatch, lambda subject: lambda *inputs: subject.ours({}, *inputs))
    out = tmp_path / "speed.json"
    assert run("--budget=0", f"--out={out}") == 0
    left = json.loads(out.read_text())["not_measured"]
    assert "FOLNet layer" in left
    assert "BoxWorld, bridge" in left
    assert "not measured, budget exhausted" in capsys.readouterr().out


def test_a_library_or_a_part_of_a_name():
    names = ["trans, odd", "trans, decoder", "FOLNet layer"]
    keys = [*libraries.LIBRARIES, program.PYTHON]
    assert program.select("", names) == (names, keys)
    assert program.select("tokamax", names) == (names, ["tokamax"])
    assert program.select("trans", names) == (names[:2], keys)
