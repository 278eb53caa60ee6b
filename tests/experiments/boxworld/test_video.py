"""Clips: what is on a frame, and files read back."""

import dataclasses
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image

from experiments.boxworld import episodes, video
from simplicial import analysis
from tests.experiments.boxworld.player import small_episode

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SCALE = 24


@pytest.fixture(scope="module")
def episode():
    """An episode of eight steps."""
    return small_episode()


@pytest.fixture(scope="module")
def views(episode):
    return episodes.virtual_views(episode)


@pytest.fixture(scope="module")
def frames(episode, views):
    return video.frames(episode, views, SCALE)


def corners(left, top, scale, shape=(7, 10)):
    """Pixels just inside the upper left corner of every tile, where no letter is."""
    return (
        top + scale * np.arange(shape[0])[:, None] + 1,
        left + scale * np.arange(shape[1])[None] + 1,
    )


def found(frame, picture, scale):
    """Where on a frame a picture is, by its tiles' corners; fails if it is not there."""
    height, width = frame.shape[0] - 7 * scale, frame.shape[1] - 10 * scale
    for top in range(height):
        for left in range(width):
            if (frame[corners(left, top, scale)] == picture).all():
                return left, top
    raise AssertionError("the picture is not on the frame")


def test_frames_have_the_board_and_the_views(episode, views, frames):
    """At every step at the same places; the views are half as large, lit by their weights."""
    assert len(frames) == episode.steps + 1
    assert len({frame.shape for frame in frames}) == 1
    assert all(length % 16 == 0 for length in frames[0].shape[:2]), "what video encoders want"
    board = found(frames[0], episode.pictures[0], SCALE)
    for time in (3, episode.steps):
        left, top = board
        assert (frames[time][corners(left, top, SCALE)] == episode.pictures[time]).all()
    places = [
        found(frames[3], episodes.spotlight(episode.pictures[3], maps[3]), SCALE // 2)
        for maps in views.values()
    ]
    assert len(set(places)) == 4
    assert min(left for left, _ in places) > board[0] + 10 * SCALE


def test_frames_have_the_attention_to_pairs(episode, frames):
    """The second block's, in the colours of the map."""
    maps = np.asarray(analysis.pair_maps(episode.attention[1]))[5, 0]
    wanted = colormaps["viridis"](maps, bytes=True)[..., :3]
    rows = [
        row[np.r_[True, (row[1:] != row[:-1]).any(-1)]]
        for row in frames[5]
        if (row != 255).any(-1).sum() > 300
    ]
    for pair in wanted:
        runs = pair[np.r_[True, (pair[1:] != pair[:-1]).any(-1)]]
        assert any(_contains(row, runs) for row in rows)


def _contains(row, runs):
    return any(
        len(row) >= start + len(runs) and (row[start : start + len(runs)] == runs).all()
        for start in range(len(row) - len(runs) + 1)
    )


def test_frames_differ_with_what_the_agent_thinks(episode, views):
    """The bars are the probabilities: with others the frame is another, below the board."""
    other = dataclasses.replace(episode, probabilities=episode.probabilities[:, ::-1])
    one, changed = video.frames(episode, views, SCALE)[0], video.frames(other, views, SCALE)[0]
    rows = np.flatnonzero((one != changed).any((1, 2)))
    assert len(rows)
    assert rows.min() > 7 * SCALE


def test_a_gif_read_back(tmp_path, episode, frames):
    """Every frame, its time, and the board's colours exactly."""
    path = video.write_gif(frames, tmp_path / "new" / "episode.gif", fps=5)
    left, top = found(frames[0], episode.pictures[0], SCALE)
    with Image.open(path) as image:
        assert getattr(image, "n_frames", 1) == len(frames)
        assert image.info["loop"] == 0
        times = []
        for number, frame in enumerate(frames):
            image.seek(number)
            times.append(image.info["duration"])
            pixels = np.asarray(image.convert("RGB"))
            assert (pixels[corners(left, top, SCALE)] == episode.pictures[number]).all()
            assert (np.abs(pixels.astype(int) - frame).max(-1) > 24).mean() < 0.01
            assert (pixels[0] == 255).all()
    assert times == [200] * episode.steps + [2500]


def test_an_mp4_read_back(tmp_path, episode, frames):
    """As many frames as there should be, and the board's colours but for the encoder's losses."""
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    path = video.write_mp4(frames, tmp_path / "new" / "episode.mp4", fps=4)
    decoded = subprocess.run(
        [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(path), "-f", "rawvideo",
         "-pix_fmt", "rgb24", "-"],
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    pictures = np.frombuffer(decoded, np.uint8).reshape(-1, *frames[0].shape)
    assert len(pictures) == len(frames) + round(4 * video.HOLD_SECONDS)
    left, top = found(frames[0], episode.pictures[0], SCALE)
    for picture, seen in zip(pictures, episode.pictures, strict=False):
        middle = picture[top + 3 :: SCALE, left + SCALE - 4 :: SCALE][:7, :10].astype(int)
        assert np.abs(middle - seen).max() < 40
        assert np.abs(middle - seen).mean() < 6


def test_without_an_encoder(tmp_path, monkeypatch, frames):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert not video.can_write_mp4()
    with pytest.raises(video.MissingEncoderError, match=r"pip install 'logic-zoo\[video\]'"):
        video.write_mp4(frames, tmp_path / "episode.mp4")
    assert not (tmp_path / "episode.mp4").exists()


def test_an_encoder_failure_is_reported(tmp_path, frames):
    pytest.importorskip("imageio_ffmpeg")
    (tmp_path / "episode.mp4").mkdir()
    with pytest.raises(RuntimeError, match=r"episode\.mp4: ffmpeg failed: .*"):
        video.write_mp4(frames, tmp_path / "episode.mp4")


@pytest.mark.parametrize(
    ("kind", "world", "scale"), [("relational", "standard", 12), ("simplicial", "bridge", 40)]
)
def test_other_agents_and_sizes(kind, world, scale):
    """Nothing is cut off: the margin to the right and below is paper."""
    episode = small_episode(kind, world, 2)
    shown = video.frames(episode, episodes.landmark_views(episode, ("player",), blocks=(0, 1)), scale)
    assert len(shown) == 3
    for frame in shown:
        assert (frame[-6:] == 255).all()
        assert (frame[:, -6:] == 255).all()


def test_refuses(tmp_path, episode, views, frames):
    sizes: tuple[Any, ...] = (8, 25.5)
    for scale in sizes:
        with pytest.raises(ValueError, match=r"scale: got .*, expected a whole number of at least 12"):
            video.frames(episode, views, scale)
    for write in (video.write_gif, video.write_mp4):
        with pytest.raises(ValueError, match="pictures: got none"):
            write([], tmp_path / "x.gif")
        with pytest.raises(ValueError, match="fps: got 0, expected a value above 0"):
            write(frames, tmp_path / "x.gif", fps=0)
