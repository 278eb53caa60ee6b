"""The metrics file: valid JSON, and seamless after a restart."""

import json

import numpy as np
import pytest

from experiments.runtime import metrics


def test_lines_come_back(tmp_path):
    writer = metrics.MetricsWriter(tmp_path, 0)
    writer.write(10, {"loss": np.float32(0.5), "count": 3})
    writer.write(20, {"loss": float("inf"), "count": np.int64(4), "nothing": float("nan")})
    writer.sync()
    writer.close()
    first, _ = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert first == '{"step": 10, "loss": 0.5, "count": 3}'  # an integer stays one
    assert metrics.read(tmp_path / "metrics.jsonl") == [
        {"step": 10, "loss": 0.5, "count": 3},
        {"step": 20, "loss": None, "count": 4, "nothing": None},
    ]


@pytest.mark.parametrize("torn", ["", '{"step": 40, "lo', '{"step": 40}', "{"])
def test_a_continued_record_drops_what_came_after_the_checkpoint_and_half_a_line(tmp_path, torn):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        "".join(json.dumps({"step": step, "loss": step / 4}) + "\n" for step in (10, 20, 30)) + torn
    )
    writer = metrics.MetricsWriter(tmp_path, 20)
    assert writer.last == {"step": 20, "loss": 5.0}
    writer.write(30, {"loss": 1})
    writer.close()
    assert metrics.read(path) == [
        {"step": 10, "loss": 2.5},
        {"step": 20, "loss": 5.0},
        {"step": 30, "loss": 1},
    ]
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_steps_only_go_forward(tmp_path):
    writer = metrics.MetricsWriter(tmp_path, 0)
    writer.write(10, {})
    with pytest.raises(ValueError, match="step: got 10, expected more than 10, the last line's"):
        writer.write(10, {})
    writer.close()


def test_a_damaged_record_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"loss": 2}\n{"step": 3}\n')
    with pytest.raises(ValueError, match=r"metrics.jsonl: got .* in line 2, expected a JSON object"):
        metrics.read(path)


@pytest.mark.parametrize("line", [b"\xff\xfe", b'{"step": "1"}', b"[1]", b'{"step": 2.5}'])
def test_a_line_of_other_bytes_is_named_and_the_file_stays(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b"\n")
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"metrics.jsonl: got .* in line 2, expected a JSON object"):
        metrics.MetricsWriter(tmp_path, 3)
    assert path.read_bytes() == before


def test_values_must_be_numbers():
    with pytest.raises(ValueError, match=r"metric 'error': got .*, expected a scalar"):
        metrics.plain({"error": [1, 2]})


def test_no_record_no_lines(tmp_path):
    assert metrics.read(tmp_path / "metrics.jsonl") == []
