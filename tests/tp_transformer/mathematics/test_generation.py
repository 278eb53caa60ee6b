"""Generation of large sets into text files: completeness, interruption, conflicts."""

import collections
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from logic_zoo import workers
from tp_transformer.mathematics import generation as mathematics_generation
from tp_transformer.mathematics import parts as mathematics_parts
from tp_transformer.mathematics import questions as mathematics_questions
from tp_transformer.mathematics.generation import generate
from tp_transformer.mathematics.modules import SPLITS
from tp_transformer.mathematics.sources import Generator, TextDirectory

SET = Generator(
    train=360,
    test=70,
    names=("numbers__place_value", "arithmetic__add_or_sub"),
    extrapolation=("numbers__place_value_big",),
)
# A separate program with small parts, so that it can be killed between them, and pauses before them.
PROGRAM = """
import signal, sys, time, types
# A shell ignores this signal in what it runs in the background, which is inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)
package = types.ModuleType("tp_transformer")  # without the models, so without JAX
package.__path__ = [{package!r}]
sys.modules["tp_transformer"] = package
from tp_transformer.mathematics import generation, parts
parts.LARGEST = 16
draw = generation.draw
def late(*arguments, **options):
    time.sleep({pause})
    return draw(*arguments, **options)
generation.draw = late
from tp_transformer.mathematics.generation import generate
from tp_transformer.mathematics.sources import Generator
if __name__ == "__main__":
    generate(sys.argv[1], Generator(**{arguments!r}), processes=int(sys.argv[2]), show=True)
"""


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    """Uses parts of sixteen questions, so that small sets have several parts."""
    monkeypatch.setattr(mathematics_parts, "LARGEST", 16)
    yield
    _forget()


def _forget():
    """Clears caches of questions drawn with this part size before other tests run."""
    from tp_transformer.mathematics import sources as mathematics_sources

    mathematics_sources._drawn.cache_clear()
    mathematics_sources._test_questions.cache_clear()
    mathematics_generation._read_excluded.cache_clear()


def _texts(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*.txt"))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, str]:
    """Generates a set without interruption in a single process."""
    root = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mathematics_parts, "LARGEST", 16)
        generate(root, SET, processes=1, show=False)
    _forget()
    return _texts(root)


def _program(tmp_path: Path, pause: float = 0.0) -> Path:
    """Writes the program; with a `pause` of .1 seconds, two workers take about three."""
    path = tmp_path / "program.py"
    arguments = {name: getattr(SET, name) for name in ("train", "test", "names", "extrapolation", "seed")}
    package = str(Path(mathematics_generation.__file__).parents[1])
    path.write_text(PROGRAM.format(package=package, arguments=arguments, pause=pause), encoding="utf-8")
    return path


def test_files_hold_what_the_source_gives(tmp_path, monkeypatch):
    """Files have the published layout, no temporary files remain; what takes longest is made first."""
    made = []

    def make(root, part, *others):
        made.append(part)
        return make_part(root, part, *others)

    make_part = mathematics_generation._make_part
    monkeypatch.setattr(mathematics_generation, "_make_part", make)
    source = generate(tmp_path, SET, processes=1, show=False)
    tests = [part for part in made if not part.split.startswith("train")]
    training = made[len(tests) :]
    for some in (tests, training):
        assert some
        assert some == sorted(some, key=lambda part: (-part.seconds, part))
    assert all(part.split.startswith("train") for part in training)
    assert isinstance(source, TextDirectory)
    for split in SPLITS:
        assert source.modules(split) == SET.modules(split)
        for module in SET.modules(split):
            assert list(source.questions(split, module)) == list(SET.questions(split, module))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {*SPLITS, "generation.json", ".lock"}
    written = json.loads((tmp_path / "generation.json").read_text())
    assert (written["train"], written["seed"]) == (360, 0)
    assert set(written["versions"]) == {"mathematics-dataset", "numpy", "sympy"}


@pytest.mark.parametrize(("train", "test"), [(30, 0), (0, 5)])
def test_only_training_or_only_tests(tmp_path, train, test):
    """Either training or test questions may be omitted."""
    some = Generator(train=train, test=test, names=SET.names[:1], extrapolation=())
    source = generate(tmp_path, some, processes=1, show=False)
    assert source.modules("train") == (SET.names[:1] if train else ())
    assert source.modules("interpolate") == (SET.names[:1] if test else ())


def test_finished_sets_are_left_alone(tmp_path, monkeypatch):
    """No question is drawn again, even with other package versions; files of a killed process go."""
    generate(tmp_path, SET, processes=1, show=False)
    left = tmp_path / "train-easy" / ".numbers__place_value.txt.abc.tmp"
    left.write_text("What")
    monkeypatch.setattr(mathematics_generation, "draw", None)
    monkeypatch.setattr(mathematics_generation.importlib.metadata, "version", lambda name: "9.9")
    generate(tmp_path, SET, processes=1, show=False)
    assert not left.exists()


def test_killed_and_started_again(tmp_path, whole):
    """After a kill at an arbitrary moment, the next run of two processes completes with the same files.

    Progress is printed line by line without a terminal.
    """
    program, root = _program(tmp_path, pause=0.1), tmp_path / "set"
    running = subprocess.Popen(
        [sys.executable, program, root, "2"], stderr=subprocess.PIPE, start_new_session=True
    )
    seen = set()  # parts disappear as files are written
    while running.poll() is None and len(seen) < 12:
        seen.update(root.rglob("*.txt"))
        time.sleep(0.002)
    running.send_signal(signal.SIGKILL)
    running.communicate()  # returns when the workers, which share its standard error, have ended too
    assert _texts(root) != whole
    result = subprocess.run(
        [sys.executable, "-W", "error", _program(tmp_path), root, "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert _texts(root) == whole
    assert not list(root.rglob("*.tmp"))
    assert result.stderr.splitlines()[-1].startswith("generating: 930 of 930 questions")


def test_interrupted_by_hand(tmp_path, whole):
    """Ctrl-C ends the run and its workers at once and keeps finished parts."""
    program, root = _program(tmp_path, pause=0.1), tmp_path / "set"
    running = subprocess.Popen(
        [sys.executable, program, root, "2"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while running.poll() is None and len(list(root.rglob("*.txt"))) < 3:
        time.sleep(0.002)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does, to all of them
    _, errors = running.communicate(timeout=30)
    assert running.returncode != 0
    chained = errors.count("During handling of the above")  # wherever in pathlib it was interrupted
    assert errors.count("Traceback") <= 1 + chained, errors  # workers print nothing
    assert "KeyboardInterrupt" in errors
    generate(root, SET, processes=1, show=False)
    assert _texts(root) == whole


def test_interrupted_when_the_parts_of_a_file_are_complete(tmp_path, whole, monkeypatch):
    """They are joined the next time."""

    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(mathematics_generation, "_merge", interrupt)
        with pytest.raises(KeyboardInterrupt):
            generate(tmp_path, SET, processes=1, show=False)
    generate(tmp_path, SET, processes=1, show=False)
    assert _texts(tmp_path) == whole


def test_the_order_of_work_is_of_no_consequence(tmp_path, whole, monkeypatch):
    """Parts may be made in any order, with any number made earlier."""
    monkeypatch.setattr(mathematics_parts.Part, "seconds", property(lambda p: (31 * p.number + p.count) % 7))
    generate(tmp_path, SET, processes=1, show=False)
    assert _texts(tmp_path) == whole


def test_no_training_question_is_a_test_question(tmp_path, monkeypatch):
    """Tested with modules that repeat their questions often."""
    problem = collections.namedtuple("problem", "question answer")

    def sample():
        number = random.randrange(1000)
        return problem(f"What is {number}?", str(number))

    monkeypatch.setattr(mathematics_questions, "_samplers", lambda split: dict.fromkeys(SET.names, sample))
    source = generate(
        tmp_path, Generator(train=300, test=200, names=SET.names, extrapolation=()), processes=1, show=False
    )
    test = {question for name in SET.names for question, _ in source.questions("interpolate", name)}
    train = [question for name in SET.names for question, _ in source.questions("train", name)]
    assert len(train) == 600
    assert not test & set(train)


def test_another_set_is_not_mixed_in(tmp_path, monkeypatch):
    """Other settings, or other versions of an unfinished set, are rejected with the differences."""
    with monkeypatch.context() as patch:
        patch.setattr(mathematics_generation, "_make", lambda *_: None)  # killed before the first part
        patch.setattr(mathematics_generation, "_write_excluded", lambda *_: None)
        with pytest.raises(ValueError, match="expected at least one of the folders"):
            generate(tmp_path, SET, processes=1, show=False)
    with pytest.raises(ValueError, match=r"contains another set \(seed: 0 there, 1 requested\)"):
        generate(tmp_path, Generator(360, 70, SET.names, SET.extrapolation, 1), processes=1)
    with pytest.raises(ValueError, match=r"train: 360 there, 3 requested; .*names: "):
        generate(tmp_path, Generator(3, 70, SET.names[:1], SET.extrapolation), processes=1)
    with monkeypatch.context() as patch:
        patch.setattr(mathematics_parts, "LARGEST", 32)
        with pytest.raises(ValueError, match="parts: "):
            generate(tmp_path, SET, processes=1)
    monkeypatch.setattr(mathematics_generation.importlib.metadata, "version", lambda name: "9.9")
    with pytest.raises(ValueError, match=r"versions: .*'9\.9'"):
        generate(tmp_path, SET, processes=1)


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    """A folder with unrelated files is rejected."""
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(
        ValueError, match=r"directory: got .* with thesis\.txt, expected an empty or generated one"
    ):
        generate(tmp_path, SET)
    with pytest.raises(ValueError, match="processes: got 0, expected at least 1"):
        generate(tmp_path / "new", SET, processes=0)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("text", [b"{", b"[]", b"\xff"])
def test_a_damaged_manifest_is_named(tmp_path, text):
    """Nothing is written in this case."""
    (tmp_path / "generation.json").write_bytes(text)
    with pytest.raises(ValueError, match=r"generation\.json: damaged, expected a record"):
        generate(tmp_path, SET, processes=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "generation.json"]


def test_two_at_once_are_refused(tmp_path):
    """The second process raises; the lock ends with its holder."""
    with (
        workers.locked(tmp_path),
        pytest.raises(RuntimeError, match="another process is writing to this folder"),
    ):
        generate(tmp_path, SET, processes=1)
    generate(tmp_path, SET, processes=1, show=False)


def test_a_damaged_part_is_found(tmp_path, monkeypatch):
    """Found before merging; the message names the file to remove."""
    seen = []

    def spoil(root, part, seed, excluded):
        made = make(root, part, seed, excluded)
        if part.number == 1 and not seen:
            seen.append(path := mathematics_generation._temporary(root, part))
            path.write_text("What?\n")
        return made

    make = mathematics_generation._make_part
    monkeypatch.setattr(mathematics_generation, "_make_part", spoil)
    with pytest.raises(ValueError, match=r"00001\.txt: got 1 lines, expected 32; remove the file"):
        generate(tmp_path, SET, processes=1, show=False)
    for path in tmp_path.glob("*/*.txt"):  # of what is finished no parts are left
        assert not (tmp_path / ".parts" / path.parent.name / path.stem).exists()
    seen[0].unlink()
    generate(tmp_path, SET, processes=1, show=False)


def test_progress_is_measured_by_time(capsys, monkeypatch):
    """What was made before does not count for the speed; a line at most every half minute, and at the end."""
    now = [100.0]
    monkeypatch.setattr(mathematics_generation.time, "monotonic", lambda: now[0])
    speeds = {"a": 1.0, "b": 2.0}
    monkeypatch.setattr(mathematics_parts, "_speed", lambda split, module: speeds[module])
    parts = [mathematics_parts.Part("train-easy", module, n, 60) for module in "ab" for n in range(2)]
    progress = mathematics_generation._Progress(parts, True)  # 60 s for each part of a, 30 s of b
    progress.add(parts[0])
    now[0] += 29
    progress.add(parts[1], made_now=True)
    assert capsys.readouterr().err == ""
    now[0] += 1
    progress.add(parts[2], made_now=True)  # 90 s of work took 30 s; 30 s of work are left
    assert capsys.readouterr().err == "generating: 180 of 240 questions, 10 s left\n"
    progress.add(parts[3], made_now=True)
    assert capsys.readouterr().err == "generating: 240 of 240 questions, 0 s left\n"
    quiet = mathematics_generation._Progress(parts, False)
    quiet.add(*parts, made_now=True)
    quiet.close()
    assert capsys.readouterr().err == ""


def test_excluded_fingerprints_survive_the_file(tmp_path):
    """Fingerprints use all 64 bits, which NumPy must not round."""
    path = tmp_path / "some.npy"
    prints = [0, 2**63 + 1, 2**64 - 1]
    np.save(path, np.asarray(prints, np.uint64))
    assert mathematics_generation._read_excluded(path) == frozenset(prints)


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for the workers in /proc")
def test_a_worker_is_killed(tmp_path, whole):
    """A worker killed for memory raises an error instead of a hang; finished parts are kept."""
    program, root = _program(tmp_path, pause=0.1), tmp_path / "set"
    running = subprocess.Popen([sys.executable, program, root, "2"], stderr=subprocess.PIPE, text=True)
    while running.poll() is None and not list(root.rglob("*.txt")):
        time.sleep(0.002)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    spawned = [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert spawned
    os.kill(spawned[0], signal.SIGKILL)
    _, errors = running.communicate(timeout=30)
    assert running.returncode != 0
    assert "a worker process was killed (out of memory?); start again" in errors
    generate(root, SET, processes=1, show=False)
    assert _texts(root) == whole
