"""Clips: what is on a frame, and files read back."""

import dataclasses
import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image, ImageDraw

from experiments.boxworld import episodes, video
from simplicial import analysis
from tests import recorded
from tests.experiments import looks
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


def test_what_is_drawn_on_a_frame_is_as_recorded(episode, views, monkeypatch, request):
    calls: list[list[Any]] = []

    class Noting(ImageDraw.ImageDraw):
        def text(self, *args: Any, **options: Any) -> None:
            place, text, fill, font = args
            calls.append(["text", list(place), text, list(fill), font.size, options])

        def rectangle(self, *args: Any, **options: Any) -> None:
            calls.append(["rectangle", *map(list, args), options])

    def paste(image, part, place):
        calls.append(["paste", list(part.size), list(place)])

    monkeypatch.setattr(ImageDraw, "Draw", Noting)
    monkeypatch.setattr(Image.Image, "paste", paste)
    shown = dataclasses.replace(episode, probabilities=np.tile([0.5, 0.25, 0.01, 1.0], (episode.steps, 1)))
    size = video.frames(shown, views, SCALE)[0].shape
    of_first = calls[: len(calls) // (episode.steps + 1)]
    recorded.check(request.path, request.node.name, [list(size), *of_first], looks.TOLERANCE)


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


def changed_box(one, other):
    """Returns left, top, right and bottom of what differs between two frames."""
    rows, columns = np.nonzero((one != other).any(axis=-1))
    return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1


def test_parts_of_a_frame_do_not_overlap(episode, views):
    """Each part is found by changing what it shows; all are apart, in reading order, off the margin."""
    last = episode.steps - 1

    def drawn(time=last, shown=views, **changes):
        return video.frames(dataclasses.replace(episode, **changes), shown, SCALE)[time]

    quiet = np.zeros_like(episode.rewards)
    plain, end = drawn(rewards=quiet), drawn(episode.steps, rewards=quiet)
    pictures = episode.pictures.copy()
    pictures[-1] = 255 - pictures[-1]
    attention = [
        dataclasses.replace(block, pairs=block.pairs[..., ::-1, ::-1]) for block in episode.attention
    ]
    rewards = quiet.copy()
    rewards[last] = 10
    boxes = {
        "board": changed_box(end, drawn(episode.steps, rewards=quiet, pictures=pictures)),
        "probabilities": changed_box(
            plain, drawn(rewards=quiet, probabilities=np.roll(episode.probabilities, 1, axis=1))
        ),
        "value": changed_box(plain, drawn(rewards=quiet, values=episode.values + 20)),
        "reward": changed_box(plain, drawn(rewards=rewards)),
        "pairs": changed_box(plain, drawn(rewards=quiet, attention=tuple(attention))),
    }
    for number, title in enumerate(views):
        others = {**views, title: views[title][..., ::-1, ::-1]}
        boxes[f"view {number}"] = changed_box(plain, drawn(shown=others, rewards=quiet))
    height, width = plain.shape[:2]
    for left, top, right, bottom in boxes.values():
        assert min(left, top, width - right, height - bottom) >= 6
    for (one, a), (other, b) in itertools.combinations(boxes.items(), 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], (one, other)
    columns = [boxes[name] for name in ("board", "probabilities", "value", "reward", "pairs")]
    assert all(upper[3] <= lower[1] for upper, lower in itertools.pairwise(columns))
    left, top, right, bottom = boxes["board"]
    assert (right - left, bottom - top) == (10 * SCALE, 7 * SCALE)
    seen = [boxes[f"view {number}"] for number in range(4)]
    assert min(box[0] for box in seen) > right
    assert seen[0][2] < seen[1][0], "the first two are side by side"
    assert seen[0][3] < seen[2][1], "and the others below them"
    assert (seen[0][0], seen[1][0]) == (seen[2][0], seen[3][0])
    assert max(box[3] for box in seen) < boxes["pairs"][1]


def test_bars_are_as_long_as_the_probabilities(episode, views):
    """In two columns: left and up, then right and down; the action taken is written darker."""
    probabilities = np.tile([0.5, 0.25, 0.0, 1.0], (episode.steps, 1))
    taken = [
        video.frames(
            dataclasses.replace(episode, probabilities=probabilities, actions=np.full(episode.steps, action)),
            views,
            SCALE,
        )[0]
        for action in (0, 3)
    ]
    is_bar = (taken[0] == (0, 114, 178)).all(axis=-1)
    is_bar[: 7 * SCALE] = False
    rows = np.flatnonzero(is_bar.any(axis=1))
    upper, lower = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
    lengths = [is_bar[line].sum(axis=1) for line in (upper, lower)]
    assert len(set(lengths[0])) == len(set(lengths[1])) == 1, "bars are rectangles"
    whole = lengths[1][0] / 1.25  # of the lower two, up and down
    assert lengths[0][0] == pytest.approx(0.5 * whole, abs=2)
    places = [np.flatnonzero(is_bar[line[0]]) for line in (upper, lower)]
    assert places[0][0] == places[1][0], "both begin after the longest name"
    assert places[1][0] + 0.25 * whole < places[1][-1] - 0.99 * whole + 3
    left, top, right, bottom = changed_box(*taken)
    assert top <= upper[0] + 4
    assert bottom >= lower[-1] - 4
    assert left < places[0][0] < right
    darker = taken[0][upper[0] : upper[-1], left : places[0][0]].astype(int).sum()
    assert darker < taken[1][upper[0] : upper[-1], left : places[0][0]].astype(int).sum()


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


@pytest.mark.parametrize(("blocks", "shown"), [(1, 0), (3, 1)])
def test_the_second_block_or_the_only_one_is_shown(episode, views, blocks, shown):
    attention = (*episode.attention, episode.attention[0])[:blocks]
    page = video._Page(dataclasses.replace(episode, attention=attention), views, SCALE)
    np.testing.assert_array_equal(page.pairs, analysis.pair_maps(episode.attention[shown])[:, 0])


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
