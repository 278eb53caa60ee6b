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

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import app, flags, logging

from experiments import runtime
from experiments.boxworld import episodes, pictures, video
from experiments.boxworld import load as boxworld_weights
from simplicial import analysis, boxworld

SOLVED_EXACTLY = 25
"""Boards of each type whose shortest solution is searched for."""


def draw_episode(
    player: episodes.Player,
    out: Path,
    *,
    name: str,
    puzzle: tuple[int, int, int] | None = None,
    seed: int = 0,
    cap: int = analysis.CAP,
    greedy: bool = False,
    attempts: int = 16,
    scale: int = 32,
    fps: float = video.FRAMES_PER_SECOND,
    formats: Sequence[str] = ("gif", "mp4"),
) -> dict[str, Path]:
    """Lets an agent play until it solves a board, and draws what it attended to on the way.

    Args:
        player: agent, parameters and environment.
        out: where the files go.
        name: what the agent is called.
        puzzle: type of the board; by default one of medium length, with a bridge if there are any.
        seed: for the boards and the actions.
        cap: steps after which an episode is given up.
        greedy: the likeliest action instead of a drawn one.
        attempts: boards to try; the last is shown if none is solved.
        scale: pixels a tile in the clip.
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
    puzzle = puzzle or usual_puzzle(player.config)
    episode, tried = episodes.first_solved(
        player, jax.random.key(seed), puzzle, attempts=attempts, cap=cap, greedy=greedy
    )
    times = episodes.moments(episode)
    title = f"{name}, {pictures.puzzle_title(episode)}"
    figures, views = {}, episodes.virtual_views(episode)
    brightness = "Tiles are as bright as their share of the largest weight; weights from .1 are written."
    if views:
        sharper = f"attention logits x {analysis.DISPLAY_SHARPENING:g}, for display only"
        figures["virtual_attention"] = pictures.board_figure(
            episode,
            views,
            times,
            title=f"Attention of the virtual entities, block 1: {title}",
            note=f"{brightness} Softmax with {sharper}.",
        )
        last = min(1, len(episode.attention) - 1)
        heads = player.agent.num_two_simplicial_heads
        for head in range(heads):
            label = f", head {head + 1}" if heads > 1 else ""
            figures["pair_attention" + (f"_{head + 1}" if heads > 1 else "")] = pictures.pair_figure(
                episode,
                times,
                title=f"2-simplicial attention, block {last + 1}{label}: {title}",
                block=last,
                head=head,
            )
        statistics = episodes.pair_statistics(player, jax.random.key(seed), block=last, cap=min(cap, 60))
        figures["pair_deviation"] = pictures.deviation_figure(
            statistics, title=f"Whose 2-simplicial attention stands out: {name}"
        )
    gem = "Gem lock" if player.config.gem_locks == 1 else "Gem lock, top"
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
    files["episode"] = _write(
        out / "episode.json",
        {
            "agent": name,
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


def measure(
    player: episodes.Player,
    *,
    episodes_each: int,
    seed: int = 0,
    cap: int = analysis.CAP,
    greedy: bool = False,
) -> tuple[analysis.Evaluation, dict[str, Any]]:
    """How boards of every type end, and how long solutions are.

    Args:
        player: agent, parameters and environment.
        episodes_each: boards of each type.
        seed: for boards and actions; the same boards for every player.
        cap: steps after which an episode is given up.
        greedy: the likeliest action instead of a drawn one.

    Returns:
        The counts, and a record of them for people: for each type its share solved with a 95 % interval, how
        the others ended, and the mean of steps over those of a shortest solution, on some of the solved
        boards; "overall" is the share solved of boards as the environment draws them.

    Raises:
        ValueError: a number is not positive.
    """
    config = player.config
    types = boxworld.puzzles(config)
    for_boards, for_actions = jax.random.split(jax.random.key(seed))
    boards = analysis.boards_of(for_boards, types, episodes_each, config)
    played = analysis.play(
        episodes.Policy(player.agent), player.params, boards, config, for_actions, cap=cap, greedy=greedy
    )
    counts = jax.device_get(analysis.tally(played, types))
    some = np.arange(len(types) * episodes_each) % episodes_each < SOLVED_EXACTLY
    boards, played = jax.tree.map(lambda leaf: leaf[some], jax.device_get((boards, played)))
    ratios = analysis.solution_ratios(boards, played).reshape(len(types), -1)

    record: dict[str, Any] = {}
    for number, puzzle in enumerate(types):
        solved = ratios[number][~np.isnan(ratios[number])]
        episodes_, won = int(counts.episodes[number]), int(counts.solved[number])
        record[pictures.type_label(puzzle, can_bridge=config.gem_locks == 2)] = {
            "solved": won / episodes_,
            "interval": list(runtime.intervals.wilson_interval(won, episodes_)),
            "died": int(counts.died[number]) / episodes_,
            "capped": int(counts.capped[number]) / episodes_,
            "episodes": episodes_,
            "mean_steps": int(counts.steps[number]) / episodes_,
            "steps_over_shortest": float(solved.mean()) if solved.size else None,
        }
    weights = analysis.probabilities(types, config)
    shares = counts.solved / counts.episodes
    error = math.sqrt(float(np.sum(weights**2 * shares * (1 - shares) / counts.episodes)))
    return counts, {
        "overall": {"solved": float(weights @ shares), "standard_error": error},
        "types": record,
    }


def draw_win_rates(
    rates: Mapping[int, tuple[analysis.Evaluation, Mapping[str, Any]]], out: Path, *, name: str
) -> dict[str, Path]:
    """Draws the win rates of one agent at one or several checkpoints.

    Args:
        rates: what `measure` gave, by the steps of the environments behind each checkpoint.
        out: where the files go.
        name: what the agent is called.

    Returns:
        The files, by what they show.
    """
    last = max(rates)
    counts, record = rates[last]
    overall = record["overall"]
    title = f"{name} after {steps_label(last)} steps: {overall['solved']:.3f} overall"
    files = {
        "win_rates": runtime.plots.save(pictures.win_rate_figure(counts, title=title), out / "win_rates.png")
    }
    if len(rates) > 1:
        figure = pictures.win_rates_over_training(
            {frames: counts for frames, (counts, _) in rates.items()},
            title=f"Fraction solved by type of puzzle: {name}",
            xlabel="steps of the environments",
        )
        files["win_rates_over_training"] = runtime.plots.save(figure, out / "win_rates_over_training.png")
    files["win_rates.json"] = _write(
        out / "win_rates.json",
        {"agent": name, "steps": {str(frames): rates[frames][1] for frames in sorted(rates)}},
    )
    return files


def steps_label(frames: int) -> str:
    """1234567 as "1.23 M"."""
    for size, unit in ((10**9, " G"), (10**6, " M"), (10**3, " k")):
        if frames >= size:
            return f"{frames / size:.3g}{unit}"
    return str(frames)


def _write(path: Path, content: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


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


def main(arguments: Sequence[str]) -> None:
    """The program."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected argument {arguments[1]!r}")
    given = flags.FLAGS
    try:
        run(
            Path(given.weights),
            Path(given.out),
            step=given.step,
            run_seed=given.run_seed,
            puzzle=parse_puzzle(given.puzzle),
            seed=given.seed,
            episodes_each=given.episodes,
            cap=given.cap,
            greedy=given.greedy,
            scale=given.scale,
            fps=given.fps,
        )
    except (ValueError, runtime.CheckpointError) as error:
        raise app.UsageError(str(error)) from error


def run(
    weights: Path,
    out: Path,
    *,
    step: int | None = None,
    run_seed: int = 0,
    puzzle: tuple[int, int, int] | None = None,
    seed: int = 0,
    episodes_each: int = 1000,
    cap: int = analysis.CAP,
    greedy: bool = False,
    scale: int = 32,
    fps: float = video.FRAMES_PER_SECOND,
) -> dict[str, Path]:
    """Draws everything there is to see of a run or of released weights; says what it does.

    Args:
        weights: a run's directory, or a released folder.
        out: where the files go.
        step: which checkpoint; by default the last, and win rates at all there are.
        run_seed: which of the run's agents, if it trained several side by side.
        puzzle: type of the episode's board.
        seed: for boards and actions.
        episodes_each: boards of every type to measure win rates on; 0 for none.
        cap: steps after which an episode is given up.
        greedy: the likeliest action instead of a drawn one.
        scale: pixels a tile in the clip.
        fps: of the clip.

    Returns:
        The files, by what they show.

    Raises:
        ValueError: there is no such run, or an argument that does not fit it.
        runtime.CheckpointError: there is no such checkpoint, or it is damaged.
    """
    trained = boxworld_weights.load(weights, step=step, seed=run_seed)
    name = trained.name
    print(f"{name} after {steps_label(trained.frames)} steps of its environments", flush=True)
    if not trained.agent.num_virtual_entities:
        print("it has no virtual entities: no virtual_attention, pair_attention, pair_deviation", flush=True)
    formats = ["gif"]
    if video.can_write_mp4():
        formats.append("mp4")
    else:
        print(f"no episode.mp4: {video.NO_ENCODER}", flush=True)
    files = draw_episode(
        trained, out, name=name, puzzle=puzzle, seed=seed, cap=cap, greedy=greedy, scale=scale, fps=fps,
        formats=formats,
    )  # fmt: skip
    if episodes_each:
        rates = {}
        for number in [trained.step] if step is not None else boxworld_weights.steps(weights):
            one = trained
            if number != trained.step:
                one = boxworld_weights.load(weights, step=number, seed=run_seed)
            rates[one.frames] = measure(one, episodes_each=episodes_each, seed=seed, cap=cap, greedy=greedy)
            overall = rates[one.frames][1]["overall"]
            print(
                f"after {steps_label(one.frames)} steps: solves {overall['solved']:.3f} "
                f"(+- {overall['standard_error']:.3f}) of boards as they are drawn",
                flush=True,
            )
        files |= draw_win_rates(rates, out, name=name)
    for path in files.values():
        print(path)
    return files


def define_flags() -> None:
    """The command line."""
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
    flags.DEFINE_integer("scale", 32, "pixels a tile in the clip", lower_bound=12)
    flags.DEFINE_float("fps", video.FRAMES_PER_SECOND, "frames a second of the clip", lower_bound=0.1)


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    define_flags()
    app.run(main)
