"""What a trained agent looks at, and which puzzles it solves: Clift et al. 2020, Figures 7 and 11 to 15.

    python -m experiments.boxworld.analysis --weights=results/boxworld/NAME --out=figures

`--weights` is a run's directory or a released folder. In `--out` it leaves

    episode.gif, episode.mp4      an episode, attention beside the board
    virtual_attention.png         first block: each virtual entity in each head, over the board
    pair_attention.png            second block: 2-simplicial attention of every entity to the pairs, 4 x 40
    pair_deviation.png            whose 2-simplicial attention stands out, over some boards
    landmark_attention.png        first block: what the player's entity and the Gem's lock attend to
    standard_attention.png        first block: 40 x 40, each head
    win_rates.png                 boards of every type of puzzle: solved, trapped, given up
    win_rates_over_training.png   where there are several checkpoints
    episode.json, win_rates.json  the numbers

A relational agent has neither virtual entities nor 2-simplicial attention: it gets the others.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from absl import flags

from experiments import runtime
from experiments.boxworld import episodes, load, measures, pictures, video
from experiments.runtime.workdir import write_json
from simplicial import analysis, boxworld


def draw_episode(
    trained: load.Trained,
    out: Path,
    *,
    puzzle: tuple[int, int, int] | None = None,
    seed: int = 0,
    cap: int = analysis.CAP,
    greedy: bool = False,
    scale: int = 32,
    fps: float = video.FRAMES_PER_SECOND,
    formats: Sequence[str] = ("gif", "mp4"),
) -> dict[str, Path]:
    """Lets an agent play until it solves a board, and draws what it attended to on the way.

    Args:
        trained: the agent.
        out: directory of the files.
        puzzle: type of the board; by default one of medium length, with a bridge if there are any.
        seed: for the boards and the actions.
        cap: steps after which an episode is given up.
        greedy: the likeliest action instead of a drawn one.
        scale: pixels of a tile in the clip.
        fps: of the clip.
        formats: of the clip, among "gif" and "mp4".

    Returns:
        The files, by what they show.

    Raises:
        ValueError: a type that the environment has not, a number that is not positive, an unknown format.
        video.MissingEncoderError: MP4 without imageio-ffmpeg.
    """
    for wanted in formats:
        runtime.one_of("formats", wanted, ("gif", "mp4"))
    puzzle = puzzle or usual_puzzle(trained.config)
    episode, tried = episodes.first_solved(trained, jax.random.key(seed), puzzle, cap=cap, greedy=greedy)
    times = episodes.moments(episode)
    title = f"{trained.name}, {pictures.puzzle_title(episode)}"
    figures, views = {}, episodes.virtual_views(episode)
    brightness = "Tiles are as bright as their share of the largest weight; weights from .1 are written."
    if views:
        figures["virtual_attention"] = pictures.board_figure(
            episode,
            views,
            times,
            title=f"Attention of the virtual entities, block 1: {title}",
            note=f"{brightness} Softmax with attention logits x {analysis.DISPLAY_SHARPENING:g}, "
            "for display only.",
        )
        last = min(1, len(episode.attention) - 1)
        heads = trained.agent.num_two_simplicial_heads
        for head in range(heads):
            suffix, label = (f"_{head + 1}", f", head {head + 1}") if heads > 1 else ("", "")
            figures[f"pair_attention{suffix}"] = pictures.pair_figure(
                episode,
                times,
                title=f"2-simplicial attention, block {last + 1}{label}: {title}",
                block=last,
                head=head,
            )
        statistics = episodes.pair_statistics(trained, jax.random.key(seed), block=last, cap=min(cap, 60))
        figures["pair_deviation"] = pictures.deviation_figure(
            statistics, title=f"Whose 2-simplicial attention stands out: {trained.name}"
        )
    gem = "Gem lock" if trained.config.gem_locks == 1 else "Gem lock, top"
    figures["landmark_attention"] = pictures.board_figure(
        episode,
        episodes.landmark_views(episode, ("player", gem)),
        times,
        title=f"Attention of the player's and the Gem lock's entity, block 1: {title}",
        note=brightness,
    )
    middle = times[len(times) // 2]
    figures["standard_attention"] = pictures.standard_figure(
        episode, middle, title=f"Attention between standard entities, block 1, step {middle}: {title}"
    )
    files = {shown: runtime.plots.save(figure, out / f"{shown}.png") for shown, figure in figures.items()}
    blocks = range(min(2, len(episode.attention)))
    frames = video.frames(
        episode, views or episodes.landmark_views(episode, ("player",), blocks=blocks), scale
    )
    for wanted in formats:
        write = video.write_gif if wanted == "gif" else video.write_mp4
        files[f"episode.{wanted}"] = write(frames, out / f"episode.{wanted}", fps)
    files["episode"] = out / "episode.json"
    write_json(
        files["episode"],
        {
            "agent": trained.name,
            "puzzle": list(puzzle),
            "seed": seed,
            "boards_tried": tried,
            "ending": episode.ending,
            "steps": episode.steps,
            "shortest": boxworld.shortest_solution(episode.state(0)),
            "moments": times,
            "actions": episode.actions.tolist(),
            "rewards": episode.rewards.tolist(),
        },
    )
    return files


def usual_puzzle(config: boxworld.BoxWorldConfig) -> tuple[int, int, int]:
    """A type of medium length, with a bridge if the environment has any."""
    types = boxworld.puzzles(config)
    types = [puzzle for puzzle in types if puzzle[1]] or types
    return types[len(types) // 3]


def _draw_win_rates(
    rates: Mapping[int, tuple[analysis.Evaluation, Mapping[str, Any]]], out: Path, name: str
) -> dict[str, Path]:
    """Draws results of `measures.by_type`, given by the steps of the environments behind each checkpoint."""
    last = max(rates)
    counts, record = rates[last]
    title = f"{name} after {steps_label(last)} steps: {record['overall']['solved']:.3f} overall"
    figures = {"win_rates": pictures.win_rate_figure(counts, title=title)}
    if len(rates) > 1:
        figures["win_rates_over_training"] = pictures.win_rates_over_training(
            {frames: counts for frames, (counts, _) in rates.items()},
            title=f"Fraction solved by type of puzzle: {name}",
        )
    files = {shown: runtime.plots.save(figure, out / f"{shown}.png") for shown, figure in figures.items()}
    files["win_rates.json"] = out / "win_rates.json"
    records = {str(frames): rates[frames][1] for frames in sorted(rates)}
    write_json(files["win_rates.json"], {"agent": name, "steps": records})
    return files


def steps_label(frames: int) -> str:
    """1234567 as "1.23 M"."""
    for size, unit in ((10**9, " G"), (10**6, " M"), (10**3, " k")):
        if frames >= size:
            return f"{frames / size:.3g}{unit}"
    return str(frames)


def parse_puzzle(text: str | None) -> tuple[int, int, int] | None:
    """The type of a puzzle from the command line, such as "2,1,3".

    Raises:
        ValueError: it is nothing of the kind.
    """
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdigit() for part in parts):
        raise ValueError(f"--puzzle={text} must be L,s,t such as 2,1,3, or L,0,0 without a bridge")
    length, lock, held = (int(part) for part in parts)
    return length, lock, held


def run(
    weights: Path,
    out: Path,
    *,
    step: int | None = None,
    run_seed: int = 0,
    puzzle: tuple[int, int, int] | None = None,
    episodes_each: int = 1000,
    scale: int = 32,
    fps: float = video.FRAMES_PER_SECOND,
    **playing: Any,
) -> dict[str, Path]:
    """Draws all pictures of a run or of released weights; its arguments are the program's flags.

    Returns:
        The files, by what they show.

    Raises:
        ValueError: there is no such run, or an argument that does not fit it.
        runtime.CheckpointError: the checkpoint does not exist or is damaged.
    """
    trained = load.load(weights, step=step, seed=run_seed)
    print(f"{trained.name} after {steps_label(trained.frames)} steps of its environments", flush=True)
    if not trained.agent.num_virtual_entities:
        print("it has no virtual entities: no virtual_attention, pair_attention, pair_deviation", flush=True)
    formats = ["gif"]
    if video.can_write_mp4():
        formats.append("mp4")
    else:
        print(f"no episode.mp4: {video.NO_ENCODER}", flush=True)
    files = draw_episode(trained, out, puzzle=puzzle, scale=scale, fps=fps, formats=formats, **playing)
    if episodes_each:
        rates = {}
        for number in [trained.step] if step is not None else load.steps(weights):
            one = trained if number == trained.step else load.load(weights, step=number, seed=run_seed)
            rates[one.frames] = measures.by_type(one, episodes_each=episodes_each, **playing)
            overall = rates[one.frames][1]["overall"]
            print(
                f"after {steps_label(one.frames)} steps: solves {overall['solved']:.3f} "
                f"(+- {overall['standard_error']:.3f}) of boards as they are drawn",
                flush=True,
            )
        files |= _draw_win_rates(rates, out, trained.name)
    for path in files.values():
        print(path)
    return files


def main() -> None:
    """The program."""
    given = flags.FLAGS
    names = ("step", "run_seed", "seed", "cap", "greedy", "scale", "fps")
    options: dict[str, Any] = {name: given[name].value for name in names}
    options |= {"puzzle": parse_puzzle(given.puzzle), "episodes_each": given.episodes}
    run(Path(given.weights), Path(given.out), **options)


if __name__ == "__main__":
    flags.DEFINE_string("weights", None, "a run's directory, or a released folder", required=True)
    flags.DEFINE_string("out", None, "directory of the figures", required=True)
    flags.DEFINE_integer("step", None, "which checkpoint of a run (default: the last; win rates at all)")
    flags.DEFINE_integer(
        "run_seed", 0, "which agent of a run that trained several, counted from 0", lower_bound=0
    )
    flags.DEFINE_string("puzzle", None, "type L,s,t of the episode's board; L,0,0 without a bridge")
    flags.DEFINE_integer("seed", 0, "for boards and actions")
    flags.DEFINE_integer("episodes", 1000, "boards of every type for win rates; 0 for none", lower_bound=0)
    flags.DEFINE_integer("cap", analysis.CAP, "steps after which an episode is given up", lower_bound=1)
    flags.DEFINE_bool("greedy", False, "the likeliest action instead of a drawn one")
    flags.DEFINE_integer("scale", 32, "pixels of a tile in the clip", lower_bound=12)
    flags.DEFINE_float("fps", video.FRAMES_PER_SECOND, "frames a second of the clip", lower_bound=0.1)
    runtime.run_program(main, reports=(ValueError, runtime.CheckpointError))
