"""Claims about agents in BoxWorld: what is compared, what is measured, what is drawn."""

import dataclasses
import json
import types
from typing import Any

import jax
import numpy as np
import pytest

from experiments.boxworld import claims, load, measures, train
from experiments.boxworld.config import BoardConfig, World, get_config, type_name, type_of
from experiments.runtime import FitResult
from experiments.runtime.claims import Run
from simplicial import boxworld


def test_the_models_are_those_of_the_claim():
    """Both agents have the parameters that the claim states and are trained for 1.2 million steps."""
    assert len(claims.QUICK.models) == 2
    for model, kind in zip(claims.QUICK.models, ("simplicial", "relational"), strict=True):
        config: Any = model.config
        assert config.agent.kind == kind
        params = jax.eval_shape(config.init_params, jax.random.key(0))
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == model.parameters
        assert model.steps * config.frames_per_step == pytest.approx(1.2e6, rel=0.03)
        assert model.steps == config.steps


def test_the_agents_that_imitate_are_those_of_the_claims():
    """The paper's two agents, a relational one as large, and two controls with fewer seeds."""
    models: list[Any] = [*claims.BRIDGE.models, *claims.HELD_OUT_TYPES.models]
    for comparison in (claims.BRIDGE, claims.HELD_OUT_TYPES):
        comparison.check()
    for model in models:
        params = jax.eval_shape(model.config.init_params, jax.random.key(0))
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == model.parameters
        assert [change["matrix_lr"] for change in model.search] == [0.005, 0.01, 0.02]
        assert model.config.board.is_the_papers
        assert (model.config.steps, model.config.decay_steps) == (600, -1)
    fields = ("kind", "features", "blocks", "pair_logit")
    assert [tuple(getattr(model.config.agent, name) for name in fields) for model in models[:5]] == [
        ("simplicial", 64, 2, "unsigned"), ("relational", 64, 2, "unsigned"),
        ("relational", 152, 2, "unsigned"), ("relational", 64, 4, "unsigned"),
        ("simplicial", 64, 2, "trilinear"),
    ]  # fmt: skip
    assert [model.compared for model in models[:5]] == [True, True, True, False, False]
    assert [bool(model.exception) for model in models[:5]] == [False, True, False, False, False]
    assert [len(claims.BRIDGE.seeds_of(model)) for model in models[:5]] == [5, 5, 5, 3, 3]
    assert [model.config.agent for model in models[5:]] == [model.config.agent for model in models[:3]]
    bridges = [name for name in map(type_name, boxworld.puzzles(boxworld.BRIDGE)) if "-" in name]
    assert {*claims.HELD_OUT} < {*bridges}
    assert claims.HELD_OUT_TYPES.search_by == "taught"
    assert all(model.config.held_out == claims.HELD_OUT for model in models[5:])
    seen = [type_of(name) for name in bridges if name not in claims.HELD_OUT]
    for length, lock, key in map(type_of, claims.HELD_OUT):
        assert any((length, lock) == other[:2] for other in seen)
        assert any((length, key) == other[::2] for other in seen)


def test_each_control_lacks_one_part():
    """Of a relational agent's imitation, which is otherwise the same."""
    claims.PARTS.check()
    first, *others = claims.PARTS.models
    whole: Any = first.config
    relational: Any = next(model.config for model in claims.BRIDGE.models if model.name == "relational")
    assert whole.decay_iterations == relational.decay_iterations
    assert dataclasses.replace(whole, decay_steps=-1) == relational
    for model in others:
        config: Any = model.config
        params = jax.eval_shape(config.init_params, jax.random.key(0))
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == model.parameters
        flat = [{**vars(of), **vars(of.agent), "agent": None} for of in (whole, config)]
        changed = {name for name in flat[0] if flat[0][name] != flat[1][name]}
        expected = {"input_centre", "input_scale"} if "centred" in model.name else changed
        assert changed == expected
        assert len(changed) == (2 if "centred" in model.name else 1)


def test_the_long_runs_are_those_of_the_claims():
    """The paper's agents on the paper's boards, three seeds from the best of several starts."""
    worlds: tuple[World, ...] = ("bridge", "standard")
    kinds = [(world, kind) for world in worlds for kind in ("relational", "simplicial")]
    for comparison, (world, kind) in zip(claims.SOLVED, kinds, strict=True):
        comparison.check()
        (model,) = comparison.models
        config: Any = model.config
        assert comparison.name == f"boxworld.solved.{world}_{kind}"
        assert config.agent.kind == kind
        params = jax.eval_shape(config.init_params, jax.random.key(0))
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == model.parameters
        assert config.board == BoardConfig(world=world)
        assert config.steps == config.decay_steps == (5000 if world == "bridge" else 3000)
        second_try = (world, kind) == ("bridge", "simplicial")
        assert (config.restarts, config.restart_steps) == ((12, 140) if second_try else (4, 200))
        assert config.frames_per_step == 1024
        assert model.search == ({},)
        assert comparison.seeds == ((13, 14, 15) if second_try else (10, 11, 12))
        boards = "5,100" if world == "bridge" else "5,000"
        assert comparison.claims[0].measure == f"fraction of {boards} fresh boards solved within 400 steps"
        assert [(claim.target, claim.higher_is_better) for claim in comparison.claims] == [
            (0.95, True),
            (1.15, False),
        ]


def test_what_is_measured_of_imitation(tmp_path, monkeypatch):
    rows = [{"step": 200, "eval/solved": 0.5}, {"step": 210}, {"step": 600, "eval/solved": 0.75}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shares = {"1": 1.0, "2-1-4": 0.5, "3-1-5": 0.25}
    ends = {"solved": 0.8, "died": 0.15, "capped": 0.05}
    agent = {**ends, "types": {name: {"solved": solved} for name, solved in shares.items()}}
    results = {"agent": agent, "chance": {"solved": 0.1}}
    result = types.SimpleNamespace(results=results, metrics={"eval/solved": 0.75, "trap_right": 0.9})
    record = {"types": {"a": {"steps_over_shortest": 1.5}, "b": {"steps_over_shortest": None}}}
    record["types"]["c"] = {"steps_over_shortest": 1.0}
    asked = []
    monkeypatch.setattr(load, "load", lambda path: asked.append(path) or "an agent")
    monkeypatch.setattr(
        measures, "by_type", lambda agent, **options: asked.append((agent, options)) or (None, record)
    )
    first: Any = claims.BRIDGE.models[0].config
    config = dataclasses.replace(first, eval_cap=90)
    run: Any = types.SimpleNamespace(workdir=tmp_path, result=result, config=config)
    expected: dict[str, Any] = {
        **ends, "validated": 0.75, "types": shares, "chance": 0.1, "curve": [[200, 0.5], [600, 0.75]],
        "steps_over_shortest": 1.25, "held_out": None,
    }  # fmt: skip
    assert claims.measure_imitation(run) == expected
    assert asked == [tmp_path, ("an agent", {"episodes_each": 25, "cap": 90})]
    run.config = dataclasses.replace(config, held_out=("2-1-4", "3-1-5"))
    expected["held_out"] = 0.375
    assert claims.measure_imitation(run) == expected
    assert claims.measure_with_traps(run) == {**expected, "trap_right": 0.9}
    assert claims.measure_held_out(run) == {**expected, "trap_right": 0.9, "taught": 1.0}


def imitated(solved, chance, **types):
    """Returns a line with what `measure_imitation` measures."""
    curve = [[200, solved], [600, 2 * solved]]
    found = {"curve": curve, "chance": chance, "validated": 2 * solved, "types": types}
    return {"measurements": found}


def test_curves_of_imitation():
    """Means over seeds against states learned from, with the mean of chance; the best seed of one model."""
    runs: Any = {
        "simplicial": [imitated(0.2, 0.1), imitated(0.4, 0.2)], "relational": [imitated(0.1, 0.3)]
    }  # fmt: skip
    drawn = {line.get_label(): line.get_data() for line in claims._imitating(runs).axes[0].lines}
    assert list(drawn) == ["simplicial", "relational", "random policy"]
    np.testing.assert_allclose(drawn["simplicial"], [[0.2048, 0.6144], [0.3, 0.6]])
    np.testing.assert_allclose(drawn["relational"], [[0.2048, 0.6144], [0.1, 0.2]])
    np.testing.assert_allclose(drawn["random policy"], [[0, 0.6144], [0.2, 0.2]])
    figure = claims._imitating(runs, seconds={"simplicial": 0.3, "relational": 0.6})
    drawn = {line.get_label(): line.get_data() for line in figure.axes[0].lines}
    np.testing.assert_allclose(drawn["simplicial"], [[1, 3], [0.3, 0.6]])
    np.testing.assert_allclose(drawn["relational"], [[2, 6], [0.1, 0.2]])
    assert figure.axes[0].get_xlabel() == "minutes of training, by quiet step times"
    figure = claims._imitating({"simplicial": runs["simplicial"]})
    drawn = {line.get_label(): line.get_data() for line in figure.axes[0].lines}
    assert list(drawn) == ["simplicial", "best on validation boards", "random policy"]
    np.testing.assert_allclose(drawn["best on validation boards"][1], [0.4, 0.8])


def test_the_rewards_after_imitation_are_the_papers():
    """From imitation as in its preset; the paper's objective, boards and sizes."""
    claims.REWARDS.check()
    (model,) = claims.REWARDS.models
    config: Any = model.config
    params = jax.eval_shape(config.init_params, jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == model.parameters
    assert model.steps * config.frames_per_step == 8_192_000
    assert config.first_config() == dataclasses.replace(get_config("demonstrations"), agent=config.agent)
    paper = get_config("paper")
    same = ("board", "lr", "clip", "decay", "epsilon", "discount", "entropy_cost", "value_cost", "learn_from")
    for name in (*same, "batch_size", "updates", "unroll", "final_episodes", "eval_cap"):
        assert getattr(config, name) == getattr(paper, name)
    boards = config.final_episodes * len(boxworld.puzzles(config.board.make()))
    assert claims.REWARDS.claims[0].measure.startswith(f"fraction of {boards:,} fresh boards")
    assert config.first_config().final_episodes == config.final_episodes


def test_what_rewards_gain(tmp_path, monkeypatch):
    """What was solved before is read from the folder of the run of imitation."""
    first = tmp_path / train.FIRST
    first.mkdir()
    content = {"results": {"solved": 0.7}, "metrics": {"eval/solved": 0.6}}
    (first / "summary.json").write_text(json.dumps(content))
    measured = []

    def measure(run):
        measured.append((run.workdir, run.config.learn_from, run.result.metrics))
        return {"solved": run.result.results["solved"]}

    monkeypatch.setattr(claims, "measure_imitation", measure)
    result = FitResult(None, {}, 400, {"eval/solved": 0.9}, {"solved": 0.95}, 1.0, {})
    found = claims.measure_after_imitation(Run(result, claims.REWARDS.models[0].config, tmp_path))
    assert found == {"solved": 0.95, "before": {"solved": 0.7}, "gained": 0.25}
    assert measured == [
        (first, "demonstrations", {"eval/solved": 0.6}), (tmp_path, "rewards", {"eval/solved": 0.9})
    ]  # fmt: skip


def test_types_solved_after_imitation():
    """A bar for each model and type, side by side."""
    runs: Any = {
        "simplicial": [imitated(0, 0, a=0.2, b=0.5), imitated(0, 0, a=0.4, b=0.5)],
        "relational": [imitated(0, 0, a=0.1, b=0.0)],
    }
    axes = claims._types_solved(runs).axes[0]
    assert axes.get_title() == "boards solved, by type; mean over seeds, 95 %"
    bars = [(bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in axes.patches]
    np.testing.assert_allclose(bars, [(-0.2, 0.3), (0.8, 0.5), (0.2, 0.1), (1.2, 0)], atol=1e-9)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["a", "b"]
    some = claims._types_solved(runs, ["b"]).axes[0]
    assert [tick.get_text() for tick in some.get_xticklabels()] == ["b"]
    assert [bar.get_height() for bar in some.patches] == [0.5, 0.0]
    for comparison in claims.SOLVED:
        assert comparison.figures is not None
        name = comparison.name.removeprefix("boxworld.solved.")
        found = comparison.figures({"relational": runs["relational"]})
        assert [*found] == [f"boxworld/solved_{name}", f"boxworld/solved_{name}_types"]


def test_seeds_of_imitation_without_a_part():
    """A row for each model, with a mark for each seed and for their mean."""
    runs: Any = {
        "all parts": [{"measurements": {"solved": 0.9}}, {"measurements": {"solved": 0.8}}],
        "without marks": [{"measurements": {"solved": 0.7}}],
    }
    axes = claims._seeds_solved(runs).axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["all parts", "without marks"]
    seeds, means = (line.get_data() for line in axes.lines)
    np.testing.assert_allclose(seeds, [[0.9, 0.8, 0.7], [0, 0, 1]])
    np.testing.assert_allclose(means, [[0.85, 0.7], [0, 1]])


def test_a_measurement_is_of_the_agent_and_of_chance(tmp_path):
    lines = [
        {"step": n, "frames": 1000 * n, "train_seconds": 1.0, "episodes": 500, "solved": n / 7}
        for n in (1, 2)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    results = {"agent": {"solved": 0.75}, "chance": {"solved": 0.1}}
    run: Any = types.SimpleNamespace(workdir=tmp_path, result=types.SimpleNamespace(results=results))
    assert claims.measure(run) == {
        "solved": 0.75,
        "chance": 0.1,
        "curve": {"frames": [1000, 2000], "solved": [0.1429, 0.2857]},  # of 500 whole episodes
    }
    (tmp_path / "metrics.jsonl").write_text("")
    assert claims.measure(run)["curve"] is None


def test_curves_are_compared_at_the_same_frames():
    """Up to the end of the shorter record; means over seeds, with chance from all runs."""

    def line(frames, solved, chance):
        return {"measurements": {"curve": {"frames": frames, "solved": solved}, "chance": chance}}

    runs: Any = {
        "simplicial": [line([0, 1e6], [0.0, 1.0], 0.1), line([0, 2e6], [0.0, 1.0], 0.2)],
        "relational": [line([0, 3e6], [0.6, 0.6], 0.3), line([0, 3e6], [0.2, 0.2], 0.4)],
    }
    drawn = {line.get_label(): line for line in claims._learning(runs).axes[0].lines}
    assert list(drawn) == ["simplicial", "relational", "random policy"]
    steps, solved = drawn["simplicial"].get_data()
    np.testing.assert_allclose((steps[0], steps[-1], len(steps)), (0.05, 1.0, 40))
    np.testing.assert_allclose(solved, 0.75 * steps)  # the mean of x and x / 2
    steps, solved = drawn["relational"].get_data()
    assert steps[-1] == pytest.approx(3.0)
    np.testing.assert_allclose(solved, 0.4)
    steps, solved = drawn["random policy"].get_data()
    np.testing.assert_allclose((*steps, *solved), (0, 3, 0.25, 0.25))
