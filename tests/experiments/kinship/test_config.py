"""The kinship config: presets, errors for invalid fields, models of equal size."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments import runtime
from experiments.kinship import zoo
from experiments.kinship.config import Config, get_config
from experiments.kinship.inputs import Listed, Source
from experiments.runtime.workdir import read_json
from folnet import FOLNetConfig, TransformerConfig, kinship
from folnet.heads import encoder
from folnet.transformer import num_parameters
from tests.experiments.kinship.small import LOOPED, SIZES, small, with_data

ROOT = Path(__file__).resolve().parents[3]
ALL = ("jmc.atp", "bert", "t5", "relation_aware")


@pytest.mark.parametrize("preset", ["quick", "looped", "ablation", "accelerator", "accelerator_234", "text"])
def test_presets_name_their_metric_and_models(preset):
    config = get_config(preset)
    config.data.validate()
    runtime.RunConfig.validate(config)
    assert (config.max_seconds > 0) != (config.decay_steps == config.steps)
    assert config.metric.startswith("mean accuracy over k = ")
    assert min(config.metric_lengths) > max(config.data.train_lengths)
    assert max(config.metric_lengths) == max(config.data.test_lengths) == 10


def test_quick_is_valid_and_matched():
    config = get_config("quick")
    config.validate()
    first, second = (num_parameters(encoder(config.settings(name))) for name in config.models)
    assert abs(first - second) <= 3 * (2 * 48 + 1) / 2


def test_a_decay_that_ends_with_a_run_ends_with_a_longer_one():
    looped = get_config("looped")
    assert (looped.with_steps(77).steps, looped.with_steps(77).decay_steps) == (77, 77)
    later = dataclasses.replace(looped, decay_steps=5000)
    assert (later.with_steps(77).steps, later.with_steps(77).decay_steps) == (77, 5000)
    assert get_config("quick").with_steps(77).decay_steps == 0


@pytest.mark.slow
def test_the_presets_of_an_accelerator_are_valid():
    for preset in ("accelerator", "accelerator_234", "text"):
        get_config(preset).validate()


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (small(model="jx.at"), "model='jx.at': operators: got 'jx.at', expected"),
        (small(model="lstm"), "model: got 'lstm', expected a FOLNet's operators, such as 'jmc.atp', or"),
        (small(baselines=("j.a",)), "baselines: got ('j.a',), expected names that differ from each other"),
        (small(match="bert"), "match: got 'bert', expected a FOLNet's operators, such as 'jmc.atp'"),
        (small(match="j.a", model="jmc.atp"), "match: got"),
        (small(match="j.", model="bert"), "model='bert': config: got"),
        (with_data(train_lengths=(1, 2)), "data, with train_lengths=(1, 2): lengths: got 1, expected"),
        (with_data(test_lengths=(3, 11)), "data, with test_lengths=(3, 11): lengths: got 11, expected"),
        (with_data(train_lengths=(3, 2)), "data.train_lengths: got (3, 2), expected increasing lengths"),
        (with_data(train_lengths=()), "data.train_lengths: got (), expected increasing lengths"),
        (with_data(form="speech"), "data.form: got 'speech', expected one of 'graph', 'text'"),
        (with_data(irrelevant=9), "irrelevant: got 9, expected 0 to 8"),
        (with_data(held_out_pairs=45), "data.held_out_pairs: count: got 45, expected 1 to 44"),
        (with_data(held_out_chains=1.0), "data.held_out_chains: fraction: got 1.0"),
        (with_data(test_problems=0), "data.test_problems: got 0, expected at least 1"),
        (small(metric_lengths=(4, 5)), "metric_lengths: got (4, 5), expected some of data.test_lengths=(2"),
        (small(lrs=(1e-3,)), "lrs: got (0.001,), expected () or one for each of 0 baselines"),
        (small(decay_steps=3), "decay_steps: got 3, expected 0, or at least steps=4"),
        (small(seed=2**31), "seed: got 2147483648, expected less than 2147483648"),
        (small(steps=2**31), "(2^32 problems)"),
        (small(b1=1.0), "b1: got 1.0, expected 0 <= b1 < 1"),
        (small(b2=-0.1), "b2: got -0.1, expected 0 <= b2 < 1"),
        (small(lr=-0.5), "lr: got -0.5, expected at least 0"),
        (small(weight_decay=-0.5), "weight_decay: got -0.5, expected at least 0"),
        (small(clip=-0.5), "clip: got -0.5, expected at least 0"),
        (small(warmup_steps=-1), "warmup_steps: got -1, expected at least 0"),
        (small(decay_steps=-1), "decay_steps: got -1, expected at least 0"),
        (small(warmup_steps=6, decay_steps=6), "decay_steps: got 6, expected 0, or at least steps=4"),
        (small(eval_batch_size=0), "eval_batch_size: got 0, expected at least 1"),
        (small(metric_lengths=()), "metric_lengths: got (), expected some of data.test_lengths"),
        (with_data(held_out_seed=-1), "data.held_out_seed: got -1, expected at least 0"),
        (with_data(pool=-1), "data.pool: got -1, expected at least 0"),
        (with_data(clutrr="here", train_lengths=(2, 4)), "data: train_lengths: got (2, 4), expected one of"),
        (with_data(clutrr="here", irrelevant=1), "data.irrelevant: got 1, expected 0 with data.clutrr="),
        (with_data(clutrr="here", varied=True), "data.varied: got True, expected False with data.clutrr"),
        (with_data(clutrr="here", form="text"), "data.form: got 'text', expected 'graph' with data.clutrr"),
        (with_data(clutrr="here", held_out_pairs=2), "data.held_out_pairs: got 2, expected 0 with"),
        (with_data(clutrr="here", test_lengths=(3, 11)), "data.test_lengths: length: got 11, expected 2 to"),
        (with_data(joined=True), "data.joined: got True, expected False without data.clutrr"),
        (small(steps=2**30 + 1), "steps: got 1073741825, expected at most 1073741824 with batch_size=4"),
        (with_data(test_lengths=()), "data.test_lengths: got (), expected increasing lengths"),
        (small(sizes=dataclasses.replace(SIZES, head_size=0)), "head_size: got 0, expected an integer"),
    ],
)  # fmt: skip
def test_invalid_fields_are_reported_in_one_line(config, named):
    with pytest.raises(ValueError, match=r".") as error:
        config.validate()
    assert named in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "config",
    [
        small(b1=0.0, b2=0.0, lr=0.0, steps=2**30),
        small(warmup_steps=3, decay_steps=4),
        small(match="", pairs=dataclasses.replace(LOOPED, sharpness=0.5)),
    ],
)
def test_bounds_themselves_are_valid(config):
    config.validate()


def test_the_narrowest_match_has_a_width_of_one():
    settings = dataclasses.replace(small(), match="").settings("j.a")
    assert isinstance(settings, FOLNetConfig)
    one, two = (zoo.num_of(settings.replace(intermediate_size=width)) for width in (1, 2))
    assert zoo.matched_folnet(settings, one).intermediate_size == 1
    with pytest.raises(ValueError, match=f"match: got {2 * one - two} parameters, expected at least {one}"):
        zoo.matched_folnet(settings, 2 * one - two)


def test_a_list_is_read_as_the_config_says():
    config = with_data(spread=False, train_lengths=(2, 4))
    pairs = dataclasses.replace(LOOPED, people="named", injection=0.0)
    read = dataclasses.replace(config, match="", pairs=pairs).reader("t5", config.data.train(0))
    assert isinstance(read, Listed)
    assert (read.spread, read.within, read.marked) == (False, 4, False)


@pytest.mark.parametrize("form", ["graph", "text"])
def test_all_families_have_as_many_parameters(form):
    config = with_data(form=form)
    config = dataclasses.replace(config, match="jmc.atp", model="jmc.atp")
    counts = [num_parameters(encoder(config.settings(name))) for name in (*ALL, "j.at")]
    # A Transformer's embeddings of positions are parameters too; a unit of width is 2 D1 + 1 of them.
    assert max(abs(count - counts[0]) for count in counts) <= (2 * 8 + 1) / 2


def test_families_are_what_their_names_say():
    for form in ("graph", "text"):
        config = with_data(form=form)
        found = {name: config.settings(name) for name in ALL if name != "jmc.atp"}
        for settings in found.values():
            assert isinstance(settings, TransformerConfig)
            assert settings.num_labels == 18
        assert (found["bert"].absolute_position, found["bert"].relative_position) == (True, "none")
        assert (found["t5"].absolute_position, found["t5"].relative_position) == (False, "t5")
        aware = found["relation_aware"]
        assert not aware.absolute_position
        assert isinstance(aware, TransformerConfig)
        if form == "graph":
            assert (aware.relative_position, aware.relation_attention) == ("none", "shaw")
            assert aware.relation_vocab_size == kinship.RELATION_VOCAB_SIZE
        else:
            assert (aware.relative_position, aware.relation_vocab_size) == ("shaw", 0)
        assert found["bert"].relation_vocab_size == 0
        folnet = dataclasses.replace(config, match="").settings("jmc.atp")
        assert isinstance(folnet, FOLNetConfig)
        assert folnet.relative_position == ("none" if form == "graph" else "folnet")


def test_each_model_has_its_own_learning_rate():
    config = small(baselines=("bert", "t5"), lrs=(1e-3, 5e-4), lr=3e-3)
    rates = {name: config.for_model(name).lr for name in (*config.models, "relation_aware")}
    assert rates == {"j.a": 3e-3, "bert": 1e-3, "t5": 5e-4, "relation_aware": 3e-3}
    assert config.for_model("t5").models == ("t5",)


def generated(source: Source) -> kinship.Kinship:
    """Returns a source that is not of published problems."""
    assert isinstance(source, kinship.Kinship)
    return source


def test_training_and_tests_are_of_different_seeds_and_parts():
    config = with_data(held_out_pairs=8)
    tests = dict(config.data.tests())
    assert list(tests) == ["2", "3", "4", "held_out/2", "held_out/3", "held_out/4"]
    train = generated(config.data.train(5))
    tests = {name: generated(source) for name, source in tests.items()}
    assert {train.part, *(tests[k].part for k in "234")} == {"seen"}
    assert {tests[f"held_out/{k}"].part for k in "234"} == {"held_out"}
    seeds = [source.seed for source in (train, *tests.values())]
    assert len(set(seeds)) == len(seeds)
    kinship.check_disjoint(train.draw(range(40)), tests["held_out/3"].draw(range(20)), config.data.held_out())
    assert {generated(source).part for _, source in small().data.tests()} == {"all"}
    chains = dataclasses.replace(config.data, held_out_chains=0.25, held_out_seed=3).held_out()
    assert chains.chains == kinship.HeldOut.draw_chains(3, 3, 0.25).chains
    assert chains.pairs == kinship.HeldOut.draw_pairs(3, 8).pairs


def test_the_published_weights_were_trained_with_a_preset():
    """Every field is in the run's record; `quick` differs in what its documentation names."""
    published = ROOT / "results" / "kinship" / "jmc.atp" / "config.json"
    found = runtime.config.from_dict(Config, read_json(published))
    assert found == dataclasses.replace(get_config("ablation"), baselines=())
    quick = dataclasses.replace(get_config("quick"), max_seconds=150.0, log_every=100, eval_every=200)
    quick.data = dataclasses.replace(quick.data, test_problems=500)
    assert quick == get_config("ablation")
    assert get_config("quick").max_seconds == 20


def test_presets_are_as_their_documentation_says():
    config = get_config("accelerator")
    assert config.models == ("jmc.atp", "j.at", "relation_aware", "bert", "t5")
    assert (config.max_seconds, config.data.train_lengths, config.data.pool) == (600, (2, 3), 200_000)
    assert get_config("accelerator_234").data.train_lengths == (2, 3, 4)
    assert get_config("text").data.form == "text"
    for name in ("accelerator_234", "text"):
        assert get_config(name).sizes == config.sizes
        assert get_config(name).models == config.models


def test_a_room_has_every_fact_and_person():
    """The most of both occur, with distractors of all kinds."""
    config = with_data(train_lengths=(2, 4), test_lengths=(3,), supporting=1, irrelevant=2, disconnected=1)
    source = config.data.train(0)
    problems = source.draw(range(20))
    assert config.data.room(source) == (
        max(problem.num_people for problem in problems),
        max(len(problem.facts) for problem in problems),
    )
    assert config.data.largest() == config.data.room(source)
    longer = dataclasses.replace(config.data, test_lengths=(3, 5))
    assert longer.largest() == (config.data.room(source).people + 1, config.data.room(source).facts + 1)


@pytest.mark.parametrize(("clip", "decay"), [(1.0, 0.0), (0.0, 0.1), (2.0, 0.2)])
def test_the_optimizer_is_clipped_adam_with_decoupled_decay(clip, decay):
    """Compared with the definition in float64, over updates with large and small gradients."""
    config = small(lr=0.5, steps=9, warmup_steps=2, clip=clip, weight_decay=decay, b1=0.8, b2=0.9)
    rng = np.random.default_rng(0)
    p = {"a": rng.normal(size=(3, 2)), "b": rng.normal(size=4)}
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), p)
    optimizer = config.make_optimizer()
    state = optimizer.init(params)
    m, v = ({name: np.zeros_like(value) for name, value in p.items()} for _ in range(2))
    for t, size in enumerate((3.0, 0.01, 1.0), start=1):
        g = {name: size * rng.normal(size=value.shape) for name, value in p.items()}
        gradient = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), g)
        update, state = optimizer.update(gradient, state, params)
        params = optax.apply_updates(params, update)
        norm = np.sqrt(sum(np.square(leaf).sum() for leaf in g.values()))
        for name in p:
            of = g[name] * (min(1.0, clip / norm) if clip else 1.0)
            m[name] = 0.8 * m[name] + 0.2 * of
            v[name] = 0.9 * v[name] + 0.1 * of**2
            step = m[name] / (1 - 0.8**t) / (np.sqrt(v[name] / (1 - 0.9**t)) + 1e-8) + decay * p[name]
            p[name] = p[name] - 0.5 * min(t / 2, 1) * step
    found: Any = params
    for name, value in p.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)


def test_the_rate_rises_then_stays_or_falls():
    def rates(updates=10, **fields):
        chosen = {"warmup_steps": 4, "clip": 0.0, "b1": 0.0, "b2": 0.0} | fields
        config = small(lr=0.5, steps=10, **chosen)
        optimizer, params = config.make_optimizer(), jnp.zeros(())
        state, found = optimizer.init(params), []
        for _ in range(updates):  # with b1 = b2 = 0 an update is the rate
            update, state = optimizer.update(jnp.float32(3), state, params)
            found.append(-np.asarray(update).item())
            params = optax.apply_updates(params, update)
        return found

    np.testing.assert_allclose(rates(), [0.125, 0.25, 0.375, *[0.5] * 7], rtol=1e-5)
    falling = [0.5 * (10 - t) / 6 for t in range(4, 10)]
    ended = [0.125, 0.25, 0.375, 0.5, *falling, 0, 0]
    np.testing.assert_allclose(rates(12, decay_steps=10), ended, rtol=1e-5)
    np.testing.assert_allclose(rates(2, warmup_steps=0), [0.5, 0.5], rtol=1e-5)
