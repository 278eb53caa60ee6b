"""Renders an episode as a clip: the board, the agent's action probabilities and value, and its attention.

MP4 output needs imageio-ffmpeg (the extra `video`); GIF output needs no extra.
"""

import importlib.util
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import logic_zoo
from experiments.boxworld import episodes
from experiments.boxworld.config import ACTIONS
from experiments.boxworld.pictures import puzzle_title
from simplicial import analysis

with logic_zoo.extra("experiments"):
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

FRAMES_PER_SECOND = 4
"""Slow enough to follow; the authors' clips have 30."""
HOLD_SECONDS = 2.5
"""Duration of the last frame in seconds."""
NO_ENCODER = "MP4 output needs imageio-ffmpeg: pip install 'logic-zoo[video]'"
_WHITE, _INK, _GREY, _BAR = (255, 255, 255), (30, 30, 30), (110, 110, 110), (0, 114, 178)
_GAP = 14
_BLOCK = 16  # video encoders need widths and heights that are multiples of it


class MissingEncoderError(RuntimeError):
    """MP4 output was requested but imageio-ffmpeg is not installed."""


def frames(episode: episodes.Episode, views: episodes.Views, scale: int = 32) -> list[np.ndarray]:
    """Renders the frames of a clip, uint8 [height, width, 3], one for every state of the episode.

    The left side shows the board with tile labels, and below it the policy and the value. The right side
    shows attention over the board in two rows. For agents with 2-simplicial attention, the bottom shows the
    first head of block 2 (or of the only block). The last frame repeats the policy and attention of the last
    step.

    Args:
        episode: the recorded episode.
        views: the attention maps to show.
        scale: pixels per tile.

    Raises:
        ValueError: `scale` is less than 12, too small for the tile labels.
    """
    if not isinstance(scale, int) or scale < 12:
        raise ValueError(f"scale: got {scale!r}, expected a whole number of at least 12 pixels per tile")
    page = _Page(episode, views, scale)
    return [page.frame(time) for time in range(episode.steps + 1)]


def write_gif(pictures: Sequence[np.ndarray], path: Path, fps: float = FRAMES_PER_SECOND) -> Path:
    """Writes a GIF that loops forever; all frames share one palette to avoid flicker.

    Raises:
        ValueError: `pictures` is empty, or `fps` is not positive.
    """
    _check(pictures, fps)
    palette = _palette([pictures[0], pictures[len(pictures) // 2], pictures[-1]])
    images = [_indexed(picture, palette) for picture in pictures]
    times = [round(1000 / fps)] * (len(images) - 1) + [round(1000 * HOLD_SECONDS)]
    path.parent.mkdir(parents=True, exist_ok=True)
    images[0].save(path, save_all=True, append_images=images[1:], duration=times, loop=0, optimize=False)
    return path


def write_mp4(pictures: Sequence[np.ndarray], path: Path, fps: float = FRAMES_PER_SECOND) -> Path:
    """Writes an MP4 (H.264 with yuv420p, which every browser plays).

    Raises:
        MissingEncoderError: imageio-ffmpeg is not installed.
        RuntimeError: the encoder failed.
        ValueError: `pictures` is empty, or `fps` is not positive.
    """
    _check(pictures, fps)
    if not can_write_mp4():
        raise MissingEncoderError(NO_ENCODER)
    import imageio_ffmpeg

    height, width = pictures[0].shape[:2]
    path.parent.mkdir(parents=True, exist_ok=True)
    held = [pictures[-1]] * round(fps * HOLD_SECONDS)
    # imageio-ffmpeg would fork, which is unsafe with JAX's threads, so ffmpeg is started here.
    done = subprocess.run(
        [
            imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-v", "error",
            "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "-",
            "-an", "-c:v", "libx264", "-crf", "18", "-pix_fmt", "yuv420p", "-movflags", "+faststart",
            str(path),
        ],
        input=b"".join(picture.tobytes() for picture in (*pictures, *held)),
        capture_output=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{path}: ffmpeg failed: {done.stderr.decode(errors='replace').strip()}")
    return path


def _palette(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Chooses 256 colours [256, 3] for frames: the 64 most frequent ones exactly, the rest quantized."""
    colours, counts = np.unique(_packed(np.concatenate(pictures)), return_counts=True)
    frequent = colours[np.argsort(-counts, kind="stable")[:64]]
    room = 256 - len(frequent)
    others = Image.fromarray(np.concatenate(pictures)).quantize(room, dither=Image.Dither.NONE).getpalette()
    others = np.asarray(others, np.uint8).reshape(-1, 3)[:room]
    palette = np.concatenate([_unpacked(frequent), others])
    return np.pad(palette, ((0, 256 - len(palette)), (0, 0)), mode="edge")


def _indexed(picture: np.ndarray, palette: np.ndarray) -> Image.Image:
    """Maps a picture to the nearest colours of a palette; Pillow's own search is slightly inexact."""
    colours, where = np.unique(_packed(picture), return_inverse=True)
    distances = _unpacked(colours).astype(int)[:, None] - palette.astype(int)[None]
    nearest = np.argmin((distances**2).sum(axis=-1), axis=1).astype(np.uint8)
    image = Image.fromarray(nearest[where].reshape(picture.shape[:2]))
    image.putpalette(palette.ravel().tolist())
    return image


def _packed(picture: np.ndarray) -> np.ndarray:
    red, green, blue = np.moveaxis(picture.astype(np.uint32), -1, 0)
    return red << 16 | green << 8 | blue


def _unpacked(colours: np.ndarray) -> np.ndarray:
    return np.stack([colours >> 16 & 255, colours >> 8 & 255, colours & 255], axis=-1).astype(np.uint8)


def can_write_mp4() -> bool:
    """Returns whether imageio-ffmpeg is installed."""
    return importlib.util.find_spec("imageio_ffmpeg") is not None


def _check(pictures: Sequence[np.ndarray], fps: float) -> None:
    if not len(pictures):
        raise ValueError("pictures: got none, expected at least 1")
    if not fps > 0:
        raise ValueError(f"fps: got {fps}, expected a value above 0")


class _Page:
    """The layout of a frame; positions are in pixels."""

    def __init__(self, episode: episodes.Episode, views: episodes.Views, scale: int):
        self.episode, self.views, self.scale = episode, views, scale
        self.font, self.small = _font(max(11, scale * 7 // 16)), _font(max(9, scale * 11 // 32))
        self.tile_font = _font(max(8, scale // 2))
        self.line = round(self.font.size * 1.5)
        rows, cols = episode.pictures.shape[1:3]
        self.board = (cols * scale, rows * scale)
        # Room for four probability bars with their names and numbers.
        self.name_width = max(self.small.getlength(name) for name in ACTIONS)
        self.left = max(self.board[0], round(2 * (self.name_width + 7 * self.small.size)))
        # Pixels per tile of a view; a view is at least as wide as 5 tiles of the board.
        self.tile = max(scale // 2, -(-5 * scale // cols))
        self.view = (cols * self.tile, rows * self.tile + self.line)
        self.view_font = self.small
        for size in range(round(self.small.size), 4, -1):  # the largest font in which all titles fit
            self.view_font = _font(size)
            if all(self.view_font.getlength(f"{title}  peak 0.00") <= self.view[0] for title in views):
                break
        self.pairs = None
        attention = episode.attention[min(1, len(episode.attention) - 1)]
        if attention.pairs is not None:
            self.pairs = np.asarray(analysis.pair_maps(attention))[:, 0]
        self.columns = -(-len(views) // 2)
        width = self.left + 2 * _GAP + self.columns * (self.view[0] + _GAP)
        titles = [self.font.getlength(self._title(time)) for time in (0, episode.steps)]
        legends = [0.0]
        if self.pairs is not None:
            legends += [self.small.getlength(self._legend(time)) for time in range(episode.steps)]
        width = max(width, *(round(text) + 2 * _GAP for text in titles), round(max(legends)) + 6 * _GAP)
        self.top = _GAP + self.line
        self.below = self.top + max(self.board[1] + _GAP + 4 * self.line, 2 * (self.view[1] + _GAP))
        height = self.below
        if self.pairs is not None:
            self.strip = max(6, scale * 3 // 8)
            height += 2 * self.line + self.pairs.shape[1] * self.strip + self.line
        self.size = -(-width // _BLOCK) * _BLOCK, -(-(height + _GAP) // _BLOCK) * _BLOCK

    def frame(self, time: int) -> np.ndarray:
        image = Image.new("RGB", self.size, _WHITE)
        draw = ImageDraw.Draw(image)
        draw.text((_GAP, _GAP // 2), self._title(time), _INK, self.font)
        self._board(image, draw, time)
        before = min(time, self.episode.steps - 1)
        self._policy(draw, before)
        for number, (title, maps) in enumerate(self.views.items()):
            self._view(image, draw, number, title, maps[before], self.episode.pictures[before])
        if self.pairs is not None:
            self._pairs(image, draw, before)
        return np.asarray(image)

    def _title(self, time: int) -> str:
        is_over = time == self.episode.steps
        text = f"{self.episode.ending} after {time} steps" if is_over else f"step {time}"
        return f"{puzzle_title(self.episode)}: {text}"

    def _legend(self, time: int) -> str:
        return "   ".join(f"{episodes.CODES[name]} {name}" for name in self.episode.landmarks(time))

    def _board(self, image: Image.Image, draw: ImageDraw.ImageDraw, time: int) -> None:
        picture = self.episode.pictures[time]
        image.paste(_enlarged(picture, self.scale), (_GAP, self.top))
        for (x, y), name in episodes.tile_names(self.episode.state(time)).items():
            place = (_GAP + (x + 0.5) * self.scale, self.top + (y + 0.5) * self.scale)
            colour = (0, 0, 0) if episodes.is_bright(picture[y, x]) else _WHITE
            draw.text(place, name, colour, self.tile_font, anchor="mm")

    def _policy(self, draw: ImageDraw.ImageDraw, time: int) -> None:
        """Draws the action probabilities (the chosen action is dark), the value and the reward."""
        y = self.top + self.board[1] + _GAP
        width = self.left // 4
        start_of_bar, room = self.name_width + 6, 2 * width - self.name_width - 6 - 3.2 * self.small.size
        for action, name in enumerate(ACTIONS):
            top = y + action % 2 * self.line
            left = _GAP + action // 2 * 2 * width
            colour = _INK if action == self.episode.actions[time] else _GREY
            draw.text((left, top), name, colour, self.small)
            start = left + start_of_bar
            share = float(self.episode.probabilities[time, action])
            draw.rectangle((start, top + 2, start + room, top + self.small.size), outline=(200, 200, 200))
            if share * room >= 1:
                draw.rectangle((start, top + 2, start + share * room, top + self.small.size), fill=_BAR)
            draw.text((start + room + 5, top), f"{share:.2f}", colour, self.small)
        reward = self.episode.rewards[time]
        value = (
            f"value {self.episode.values[time]:.1f}, return so far {self.episode.rewards[:time].sum():.0f}"
        )
        draw.text((_GAP, y + 2 * self.line + 2), value, _INK, self.small)
        if reward:
            event = f"moves {ACTIONS[self.episode.actions[time]]}, reward {reward:+.0f}"
            draw.text((_GAP, y + 3 * self.line), event, _INK, self.small)

    def _view(self, image, draw, number: int, title: str, weights, picture) -> None:
        row, column = divmod(number, self.columns)
        left = self.left + 2 * _GAP + column * (self.view[0] + _GAP)
        top = self.top + row * (self.view[1] + _GAP)
        draw.text((left, top), title, _INK, self.view_font)
        peak = f"peak {weights.max():.2f}"
        draw.text((left + self.view[0], top), peak, _GREY, self.view_font, anchor="ra")
        image.paste(_enlarged(episodes.spotlight(picture, weights), self.tile), (left, top + self.line))

    def _pairs(self, image, draw, time: int) -> None:
        assert self.pairs is not None
        matrix = self.pairs[time]
        pairs, entities = matrix.shape
        names = analysis.pair_labels(round(pairs**0.5))
        left = _GAP + round(max(draw.textlength(name, self.small) for name in names)) + 6
        width = (self.size[0] - left - _GAP) // entities * entities
        top = self.below + 2 * self.line
        draw.text((_GAP, self.below), "2-simplicial attention of each entity to the pairs", _INK, self.small)
        colours = matplotlib.colormaps["viridis"](matrix, bytes=True)[..., :3]
        strip = Image.fromarray(np.ascontiguousarray(colours)).resize(
            (width, pairs * self.strip), Image.Resampling.NEAREST
        )
        image.paste(strip, (left, top))
        for row, name in enumerate(names):
            place = (left - 6, top + (row + 0.5) * self.strip)
            draw.text(place, name, _INK, self.small, anchor="rm")
        for entity, codes in self.episode.codes(time).items():
            x = left + (entity + 0.5) * width / entities
            draw.text((x, top - 3), " ".join(codes), _INK, self.small, anchor="mb")
        draw.text((left, top + pairs * self.strip + 4), self._legend(time), _GREY, self.small)


def _enlarged(picture: np.ndarray, scale: int) -> Image.Image:
    height, width = picture.shape[:2]
    return Image.fromarray(picture).resize((width * scale, height * scale), Image.Resampling.NEAREST)


def _font(size: int) -> ImageFont.FreeTypeFont:
    """Loads the font that ships with Matplotlib, so that clips look the same on every machine."""
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"), size)
