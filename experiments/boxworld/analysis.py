"""Draws a trained agent's attention and win rates: Clift et al. 2020, Figures 7 and 11 to 15.

    python -m experiments.boxworld.analysis --weights=boxworld/quick_simplicial --out=figures

`--weights` is a run's directory, a released folder, or the name of a released model. Writes to `--out`:

    episode.gif, episode.mp4      one episode with the agent's attention
    virtual_attention.png         block 1: attention of each virtual entity and head over the board
    pair_attention.png            block 2: 2-simplicial attention of every entity to the pairs, 4 x 40
    pair_deviation.png            distance of each landmark's 2-simplicial attention from the median
    pair_phases.png               the pairs attended to, also before, while and after a bridge can be opened
    landmark_attention.png        block 1: attention of the entities at the player and at the Gem's lock
    standard_attention.png        block 1: attention between standard entities, 40 x 40 per head
    win_rates.png                 boards solved, trapped and given up, by puzzle type
    win_rates_over_training.png   the same at every checkpoint, if there are several
    episode.json, pairs.json, win_rates.json    the numbers behind the figures
    generalization.json           with --generalization: larger boards, longer solutions, more distractors

For a relational agent, which has neither virtual entities nor 2-simplicial attention, `virtual_attention`
and all about pairs are omitted.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
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
    """Plays boards until the agent solves one, and draws its attention during that episode.

    Args:
        trained: the agent.
        out: output directory.
        puzzle: type of the board; by default one of medium length, with a bridge if the environment has any.
        seed: seed for boards and actions.
        cap: number of steps after which an episode is given up.
        greedy: take the most likely action instead of sampling.
        scale: pixels per tile in the clip.
        fps: frames per second of the clip.
        formats: formats of the clip, "gif" and "mp4".

    Returns:
        The paths written, by figure name.

    Raises:
        ValueError: the environment has no such type, a number is not positive, or a format is unknown.
        video.MissingEncoderError: MP4 was requested and imageio-ffmpeg is not installed.
    """
    for wanted in formats:
        runtime.one_of("formats", wanted, ("gif", "mp4"))
    puzzle = puzzle or usual_puzzle(trained.config)
    episode, tried = episodes.first_solved(trained, jax.random.key(seed), puzzle, cap=cap, greedy=greedy)
    times = episodes.moments(episode)
    title = f"{trained.name}, {pictures.puzzle_title(episode)}"
    pairs: dict[str, Any] = {}
    figures, views = {}, episodes.virtual_views(episode)
    brightness = "Brightness is the weight relative to the largest; weights of at least .1 are printed."
    if views:
        figures["virtual_attention"] = pictures.board_figure(
            episode,
            views,
            times,
            title=f"Attention of the virtual entities, block 1: {title}",
            note=f"{brightness} For display, the attention logits are multiplied by "
            f"{analysis.DISPLAY_SHARPENING:g}.",
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
        boards = episodes.play(trained, jax.random.key(seed), cap=min(cap, 60), greedy=greedy)
        statistics = episodes.pair_statistics(boards, block=last)
        figures["pair_deviation"] = pictures.deviation_figure(
            statistics, title=f"Deviation of 2-simplicial attention from the median: {trained.name}"
        )
        phases = episodes.pair_phases(boards, block=last)
        figures["pair_phases"] = pictures.phases_figure(
            phases, title=f"Pairs of virtual entities attended to: {trained.name}"
        )
        pairs = {"deviation": _over_boards(statistics), "phases": _over_boards(phases)}
    gem = "Gem lock" if trained.config.gem_locks == 1 else "Gem lock, top"
    figures["landmark_attention"] = pictures.board_figure(
        episode,
        episodes.landmark_views(episode, ("player", gem)),
        times,
        title=f"Attention of the player's and the Gem lock's entities, block 1: {title}",
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
    if pairs:
        files["pairs"] = out / "pairs.json"
        write_json(files["pairs"], {"agent": trained.name, "seed": seed, **pairs})
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


def _over_boards(groups: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Returns for each group of values by board their number, their mean and its standard error."""
    found = {}
    for name, rows in groups.items():
        values = np.asarray(rows)
        if len(values) > 1:
            error = values.std(axis=0, ddof=1) / len(values) ** 0.5
            found[name] = {
                "boards": len(values),
                "mean": values.mean(axis=0).round(5).tolist(),
                "standard_error": error.round(5).tolist(),
            }
    return found


def usual_puzzle(config: boxworld.BoxWorldConfig) -> tuple[int, int, int]:
    """Returns a puzzle type of medium length, with a bridge if the environment has any."""
    types = boxworld.puzzles(config)
    types = [puzzle for puzzle in types if puzzle[1]] or types
    return types[len(types) // 3]


def _draw_win_rates(
    rates: Mapping[int, tuple[analysis.Evaluation, Mapping[str, Any]]], out: Path, name: str
) -> dict[str, Path]:
    """Draws the results of `measures.by_type`, keyed by each checkpoint's number of environment steps."""
    last = max(rates)
    counts, record = rates[last]
    title = f"{name} after {steps_label(last)} steps: {record['overall']['solved']:.3f} overall"
    figures = {"win_rates": pictures.win_rate_figure(counts, title=title)}
    if len(rates) > 1:
        figures["win_rates_over_training"] = pictures.win_rates_over_training(
            {frames: counts for frames, (counts, _) in rates.items()},
            title=f"Fraction solved by puzzle type: {name}",
        )
    files = {shown: runtime.plots.save(figure, out / f"{shown}.png") for shown, figure in figures.items()}
    files["win_rates.json"] = out / "win_rates.json"
    records = {str(frames): record for frames, (_, record) in rates.items()}
    write_json(files["win_rates.json"], {"agent": name, "steps": records})
    return files


def steps_label(frames: int) -> str:
    """Formats a number of steps: 1234567 as "1.23 M"."""
    for size, unit in ((10**9, " G"), (10**6, " M"), (10**3, " k")):
        if frames >= size:
            return f"{frames / size:.3g}{unit}"
    return str(frames)


def parse_puzzle(text: str | None) -> tuple[int, int, int] | None:
    """Parses a puzzle type from the command line, such as "2,1,3".

    Raises:
        ValueError: `text` is not three whole numbers.
    """
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdigit() for part in parts):
        raise ValueError(f"--puzzle: got {text!r}, expected L,s,t such as 2,1,3, or L,0,0 without a bridge")
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
    generalization: bool = False,
    scale: int = 32,
    fps: float = video.FRAMES_PER_SECOND,
    **playing: Any,
) -> dict[str, Path]:
    """Draws all figures for a run or a released folder; the arguments are the program's flags.

    Returns:
        The paths written, by figure name.

    Raises:
        ValueError: `weights` is not a run, or an argument does not fit it.
        runtime.CheckpointError: the checkpoint does not exist or is damaged.
    """
    if generalization and not episodes_each:
        raise ValueError("--episodes: got 0, expected at least 1 with --generalization")
    trained = load.load(weights, step=step, seed=run_seed)
    print(f"{trained.name} after {steps_label(trained.frames)} environment steps", flush=True)
    if not trained.agent.num_virtual_entities:
        print("no virtual entities: skipping virtual_attention and pairs", flush=True)
    formats = ["gif"]
    if video.can_write_mp4():
        formats.append("mp4")
    else:
        print(f"skipping episode.mp4: {video.NO_ENCODER}", flush=True)
    files = draw_episode(trained, out, puzzle=puzzle, scale=scale, fps=fps, formats=formats, **playing)
    if episodes_each:
        rates = {}
        for number in [trained.step] if step is not None else load.steps(weights):
            one = trained if number == trained.step else load.load(weights, step=number, seed=run_seed)
            rates[one.frames] = measures.by_type(one, episodes_each=episodes_each, **playing)
            overall = rates[one.frames][1]["overall"]
            print(
                f"after {steps_label(one.frames)} steps: solved {overall['solved']:.3f} "
                f"(+- {overall['standard_error']:.3f}) of boards from the training distribution",
                flush=True,
            )
        files |= _draw_win_rates(rates, out, trained.name)
    if generalization:
        found = measures.generalization(trained, episodes=episodes_each, **playing)
        for name, record in found.items():
            solved, chance = (record[policy]["solved"] for policy in ("agent", "chance"))
            print(f"{name}: solved {solved:.3f} (a random policy: {chance:.3f})", flush=True)
        files["generalization.json"] = out / "generalization.json"
        write_json(files["generalization.json"], {"agent": trained.name, "environments": found})
    for path in files.values():
        print(path)
    return files


def main() -> None:
    """Runs the program with the values of its flags."""
    given = flags.FLAGS
    names = ("step", "run_seed", "seed", "cap", "greedy", "scale", "fps")
    options: dict[str, Any] = {name: given[name].value for name in names}
    options |= {"puzzle": parse_puzzle(given.puzzle), "episodes_each": given.episodes}
    options["generalization"] = given.generalization
    run(Path(given.weights), Path(given.out), **options)


if __name__ == "__main__":
    flags.DEFINE_string(
        "weights", None, "a run's directory, a released folder, or a released model's name", required=True
    )
    flags.DEFINE_string("out", None, "output directory", required=True)
    flags.DEFINE_integer(
        "step", None, "step of a run's checkpoint (default: the last, and win rates at every one)"
    )
    flags.DEFINE_integer(
        "run_seed", 0, "index of the agent, from 0, for runs with several seeds", lower_bound=0
    )
    flags.DEFINE_string("puzzle", None, "puzzle type L,s,t of the episode; L,0,0 without a bridge")
    flags.DEFINE_integer("seed", 0, "seed for boards and actions")
    flags.DEFINE_integer(
        "episodes", 1000, "boards per puzzle type for win rates; 0 skips them", lower_bound=0
    )
    flags.DEFINE_bool(
        "generalization", False, "also play larger boards, with longer solutions and more distractors"
    )
    flags.DEFINE_integer(
        "cap", analysis.CAP, "number of steps after which an episode is given up", lower_bound=1
    )
    flags.DEFINE_bool("greedy", False, "take the most likely action instead of sampling")
    flags.DEFINE_integer("scale", 32, "pixels per tile in the clip", lower_bound=12)
    flags.DEFINE_float("fps", video.FRAMES_PER_SECOND, "frames per second of the clip", lower_bound=0.1)
    runtime.run_program(main, reports=(ValueError, runtime.CheckpointError))
