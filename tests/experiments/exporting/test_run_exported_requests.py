"""Exported models answer lines of JSON, and files of lines or arrays."""

import io
import json
import zipfile

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.exporting import run_exported
from experiments.exporting.run_exported import Refused
from tests.experiments.exporting.small import IDS

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ([], "request: got list, expected"),
        ({"inputs": {"ids": [[1]]}, "text": "a"}, "request: got keys inputs, text, expected"),
        ({"id": 1}, "request: got keys id, expected"),
        ({"inputs": {"ids": [[1]]}, "ids": 1}, "request: got key 'ids', expected 'text'"),
        ({"inputs": [1]}, "inputs: got list, expected an object"),
        ({"inputs": {}}, "inputs: got shapes none, expected equal numbers of rows"),
        ({"inputs": {"ids": 3}}, r"inputs: got shapes ids \[\], expected equal numbers of rows"),
        ({"inputs": {"ids": [[1], [2, 3]]}}, "input ids: got rows of different lengths"),
        ({"inputs": {"ids": [["a"]]}}, "input ids: got an array of <U1, expected int32"),
        ({"inputs": {"ids": [[0.5]]}}, "input ids: got an array of float64, expected int32"),
        (
            {"inputs": {"ids": [[1, 1 << 40]]}},
            "input ids: got numbers out of range, expected values of int32",
        ),
        ({"inputs": {"ids": [[1]], "mask": [[2]]}}, "input mask: got numbers out of range, .* of bool"),
        ({"inputs": {"ids": [[1]], "mask": [1]}}, r"input mask: got shape \[1\]"),
        ({"inputs": {"other": [[1]]}}, "inputs: got 'other', expected names among ids, mask"),
        ({"text": "a"}, "reads no text"),
    ],
)
def test_requests_that_do_not_fit_are_refused(model, request_, message):
    with pytest.raises(Refused, match=message):
        run_exported.answer(model, request_)


def test_lines_are_answered_one_by_one_and_errors_do_not_end_it(model, monkeypatch):
    lines = ['{"inputs": {"ids": [1, 2, 3]}, "id": 1}', "", "[", '{"id": [7]}', "null"]
    run_exported.serve(model, lines, out := io.StringIO())
    first, broken, empty, null = map(json.loads, out.getvalue().splitlines())
    assert first == {"id": 1, "outputs": {"each": [2.0, 4.0, 6.0], "total": 22.0}}
    assert "error" in broken
    assert empty["id"] == [7]
    assert "error" in null

    def out_of_memory(*_):
        raise RuntimeError("RESOURCE_EXHAUSTED")

    class Out(io.StringIO):
        flushed = 0

        def flush(self):
            self.flushed = len(self.getvalue().splitlines())

    def asked():
        """The next request comes when the last reply can be read."""
        for number in range(3):
            assert replies.flushed == number
            yield '{"inputs": {"ids": [[1]]}}'

    replies = Out()
    run_exported.serve(model, asked(), replies)
    assert replies.flushed == 3
    monkeypatch.setattr(run_exported, "in_even_batches", out_of_memory)
    run_exported.serve(model, lines[:1], out := io.StringIO())
    assert json.loads(out.getvalue()) == {"id": 1, "error": "RuntimeError: RESOURCE_EXHAUSTED"}


def test_what_json_cannot_say_is_an_error(model):
    with pytest.raises(Refused, match="output total: got non-finite numbers"):
        run_exported.to_json(model, {"total": np.array([1.0, np.nan])})


def test_bfloat16_is_reported_as_float32(model, tmp_path, monkeypatch):
    """NumPy would write bfloat16 as bytes without a dtype."""
    total = np.asarray(jnp.arange(3, dtype=jnp.bfloat16))
    assert run_exported.to_json(model, {"total": total}) == {"outputs": {"total": [0.0, 1.0, 2.0]}}
    monkeypatch.setattr(run_exported, "in_even_batches", lambda *_: {"total": total})
    np.savez(tmp_path / "in.npz", ids=IDS)
    run_exported.answer_file(model, tmp_path / "in.npz", tmp_path / "out.npz", batch=3)
    with np.load(tmp_path / "out.npz") as found:
        assert found["total"].dtype == np.float32
        assert found["total"].tolist() == [0, 1, 2]


def test_few_sizes_of_batches_are_compiled(model, monkeypatch):
    seen = []
    monkeypatch.setattr(type(model), "__call__", lambda self, inputs: seen.append(len(inputs["ids"])) or {})
    for count in (1, 2, 3, 5, 8):
        run_exported.in_even_batches(model, {"ids": np.ones((count, 4), np.int32)})
    run_exported.in_even_batches(model, {"ids": np.ones((5, 4), np.int32)}, 6)
    assert seen == [1, 2, 4, 8, 8, 6]


def test_files_are_answered_in_parts_whole_or_not_at_all(model, tmp_path):
    ids = np.arange(28, dtype=np.int32).reshape(7, 4)
    np.savez(tmp_path / "in.npz", ids=ids)
    assert run_exported.answer_file(model, tmp_path / "in.npz", tmp_path / "out.npz", batch=3) == 7
    with np.load(tmp_path / "out.npz") as found:
        np.testing.assert_array_equal(found["each"], 2.0 * ids)
        np.testing.assert_array_equal(found["total"], 10 + 2.0 * ids.sum(1))
    (tmp_path / "in.jsonl").write_text('{"inputs": {"ids": [[1]]}}\n\nno\n')
    assert run_exported.answer_file(model, tmp_path / "in.jsonl", tmp_path / "out.jsonl", batch=3) == 2
    answers = list(map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines()))
    assert [list(answer) for answer in answers] == [["outputs"], ["error"]]
    before = sorted(path.name for path in tmp_path.iterdir())
    np.savez(tmp_path / "in.npz", ids=ids * 9)
    (tmp_path / "torn.npz").write_bytes((tmp_path / "in.npz").read_bytes()[:90])
    (tmp_path / "empty.npz").touch()
    with zipfile.ZipFile(tmp_path / "bytes.npz", "w") as archive:
        archive.writestr("x.txt", "no array")
    for source, target, message in (
        ("in.npz", "new.npz", "got the value 207"),
        ("torn.npz", "new.npz", r"torn.npz: "),
        ("empty.npz", "new.npz", r"empty.npz: damaged, or not an .npz file"),
        ("bytes.npz", "new.npz", r"bytes.npz: damaged, or not .*x.txt is not an array"),
        ("nothing.jsonl", "new.jsonl", r"nothing.jsonl: "),
        ("in.npz", "new.jsonl", "expected both .npz or both .jsonl"),
    ):
        with pytest.raises(Refused, match=message):
            run_exported.answer_file(model, tmp_path / source, tmp_path / target, batch=3)
    for name in ("torn.npz", "empty.npz", "bytes.npz"):
        (tmp_path / name).unlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == before
