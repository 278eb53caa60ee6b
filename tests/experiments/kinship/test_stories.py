"""Stories as windows of sentences, and models that read them."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import pytest

from experiments import baselines, runtime
from experiments.kinship import load, measures, pairs, parts, stories, train
from experiments.kinship.config import Config
from experiments.kinship.parts import PairConfig, ReadingConfig
from folnet import kinship
from folnet.tasks.clutrr_graphs import Published
from tests.experiments.kinship.small import LOOPED, SIZES, small
from tests.folnet import small as small_folnet
from tests.folnet import small_tasks
from tests.folnet.tasks import test_clutrr

pytestmark = pytest.mark.usefixtures("compiled_quickly")

READING = ReadingConfig(
    vocabulary=100,
    window=24,
    windows=8,
    hidden_size=8,
    relation_size=4,
    num_hidden_layers=1,
    num_attention_heads=2,
    head_size=4,
    intermediate_size=12,
    relation_intermediate_size=8,
    max_distance=4,
)
MODELS = ("j.at", parts.T5)


def reading(model: str = "j.at", **fields: Any) -> Config:
    """Returns `small` for a model that reads generated stories and answers for pairs."""
    people: Any = "alike" if "." in model else "named"
    of_pairs = dataclasses.replace(LOOPED, people=people, injection=0.5 if "." in model else 0.0)
    # A FOLNet's second layer takes to pairs what its first has found of words.
    layers = dataclasses.replace(READING, num_hidden_layers=2 if "." in model else 1)
    config = small(model=model, match="", pairs=of_pairs, reading=layers)
    data = dataclasses.replace(config.data, form="text", pool=12)
    return dataclasses.replace(config, data=data, **fields)


def reader_of(config: Config, source: Any) -> stories.Stories:
    found = config.reader(config.model, source)
    assert isinstance(found, stories.Stories)
    return found


@functools.cache
def made(name: str) -> tuple[Any, Any, dict[str, Any], Any]:
    """Returns a model, drawn parameters, a batch and the compiled logits after each loop."""
    config = reading(name)
    model = config.make(name)
    source = config.data.train(0)
    batch = config.reader(name, source)(source, range(4))
    shapes = jax.eval_shape(train.make_init(model), jax.random.key(0))
    compiled = small_folnet.quickly(lambda p, of: measures.apply(model, p, of))
    return model, small_folnet.draw_like(shapes), batch, compiled


def logits(name: str, **changes: Any) -> list[np.ndarray]:
    _, params, batch, compiled = made(name)
    story = {key: (batch | changes)[key] for key in ("input_ids", "mentions", "names")}
    return [np.asarray(of_loop) for of_loop in compiled(params, story)]


def test_sentences_end_where_one_would_stop():
    text = (2, "'s daughter, ", 0, ", asked her: read! ", 1, "'s sister ", 0, " did not? No. Dr")
    assert stories.sentences(text) == [
        (2, "'s daughter, ", 0, ", asked her: read!"),
        (1, "'s sister ", 0, " did not?"),
        ("No.",),
        ("Dr",),
    ]
    assert stories.sentences((0, ". ", 1, " sat.")) == [(0, "."), (1, " sat.")]


def test_windows_have_two_sentences_or_one_that_is_too_long():
    """Every sentence is in some window, and no window is part of another."""
    a, b, c, d = [1, 2], [3], [4, 5, 6, 7, 8], [9]
    assert stories.windows([a, b, d], 4) == [a + b, b + d]
    assert stories.windows([a, b, c, d], 5) == [a + b, c, d]
    assert stories.windows([a, b, c, d], 4) == [a + b, c[:4], d]
    assert stories.windows([c], 4) == [c[:4]]
    assert stories.windows([d, c, a], 6) == [d + c, a]


def test_tokens_say_what_the_story_says():
    """Each window is its sentences, with the people's names, which are numbers below their count."""
    config = reading()
    source = kinship.Kinship(7, (2, 4), irrelevant=1)
    read = dataclasses.replace(reader_of(config, source), people=7, names=9)
    found = read(source, range(20))
    words = read.words.vocabulary
    assert read.vocabulary == len(words)
    drawn = set()
    for row in range(20):
        problem, names = source[row], found["names"][row]
        people = problem.num_people
        assert (names[people:] == stories.NOBODY).all()
        assert len(set(names[:people])) == people
        drawn |= set(names[:people].tolist())
        spoken: list[str | int] = []
        for part in stories.sentences(source.numbered_text(row)):
            for piece in part:
                spoken += [piece] if isinstance(piece, int) else read.words.tokenize(piece)
        texts = []
        for ids, mentions in zip(found["input_ids"][row], found["mentions"][row], strict=True):
            count = int((ids != 0).sum())
            assert (ids[count:] == 0).all()
            assert (mentions[count:] == stories.NOBODY).all()
            if count:
                assert ids[0] == read.words.cls_id
            for token, person in zip(ids[1:count], mentions[1:count], strict=True):
                assert (token >= read.vocabulary) == (person != stories.NOBODY)
                assert person == stories.NOBODY or token - read.vocabulary == names[person]
            texts.append(
                [
                    int(person) if person >= 0 else words[token]
                    for token, person in zip(ids[1:count], mentions[1:count], strict=True)
                ]
            )
        everything = " ".join(map(str, spoken))
        assert all(" ".join(map(str, text)) in everything for text in texts)
        for x, relation, y in problem.facts:
            assert found["facts"][row, x, y] == relation
            assert any({x, y} <= set(text) for text in texts)
        assert (found["facts"][row] >= 0).sum() == len(problem.facts)
        assert tuple(found["query"][row]) == problem.query
        assert found["labels"][row] == problem.label
    assert drawn == set(range(9))
    wanted = kinship.pair_labels(source.draw(range(20)), num_people=7, within=3)
    np.testing.assert_array_equal(found["pairs"], wanted[:, 1:, 1:])
    for windows in (1, 3):
        message = rf"reading.windows: got {windows}, expected at least 4, .* of story 0"
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(read, windows=windows)(source, [0])
    assert dataclasses.replace(read, windows=4)(source, [0])["input_ids"].shape[1] == 4
    found = dataclasses.replace(read, selves=True)(source, range(3))["pairs"]
    wanted = kinship.pair_labels(source.draw(range(3)), num_people=7, within=3, selves=True)
    np.testing.assert_array_equal(found, wanted[:, 1:, 1:])


def test_published_stories_have_a_vocabulary_of_their_own(tmp_path):
    """Names are not in it; the sizes of models do not depend on how many pieces were found."""
    story = '"[Ann] met her son [Bob]. His brother [Cy] sang, and [Ann] left."'
    rows = [test_clutrr.original_row(place).replace("[Jason] sat. [Lewis] ran.", story) for place in range(2)]
    rows = [row.replace("Jason:male", '"Ann:female,Bob:male,Cy:male"') for row in rows]
    small_tasks.write(tmp_path / "1.2,1.3_train.csv", test_clutrr.csv(test_clutrr.ORIGINAL, *rows))
    for length in range(2, 11):
        test = [row.replace("task_1.2", f"task_1.{length}") for row in rows]
        small_tasks.write(tmp_path / f"1.{length}_test.csv", test_clutrr.csv(test_clutrr.ORIGINAL, *test))
    config = reading()
    data = dataclasses.replace(
        config.data, clutrr=str(tmp_path), test_lengths=(2,), pool=0, train_lengths=(2, 3)
    )
    config = dataclasses.replace(config, data=data, metric_lengths=(2,))
    config.validate()
    source = data.train(0)
    assert isinstance(source, Published)
    read = reader_of(config, source)
    assert not {"ann", "bob", "cy"} & set(read.words.vocabulary)
    assert "brother" in read.words.vocabulary
    assert read.words.vocab_size < read.vocabulary == 100
    assert config.make("j.at").text.vocab_size == 100 + source.max_people
    found = read(source, [1])
    assert int((found["input_ids"] != 0).any(axis=2).sum()) == 1
    assert set(found["mentions"][found["mentions"] >= 0].tolist()) == {0, 1, 2}


def test_batches_have_stories_of_similar_lengths():
    ids = np.zeros((6, 9, 3), int)
    for row, count in enumerate((1, 9, 2, 3, 7, 5)):
        ids[row, :count, 0] = 1
    found = [(width, rows.tolist()) for width, rows in stories.groups(ids)]
    assert found == [(2, [0, 2]), (3, [3]), (6, [5]), (9, [1, 4])]
    config = reading()
    data = dataclasses.replace(config.data, irrelevant=3, varied=True)
    batches = train.make_batches(dataclasses.replace(config, data=data))
    widths = set()
    for step in range(20):
        batch = batches(step)
        width = batch["input_ids"].shape[1]
        counts = (batch["input_ids"] != 0).any(axis=2).sum(axis=1)
        assert counts.max() <= width
        assert batch["mentions"].shape == batch["input_ids"].shape
        widths.add(width)
        np.testing.assert_array_equal(batches(step)["input_ids"], batch["input_ids"])
    assert len(widths) > 1


def test_processes_share_a_batch_of_stories(monkeypatch):
    whole, parts_of = train.make_batches(reading()), []
    monkeypatch.setattr(train.jax, "process_count", lambda: 2)
    for index in (0, 1):
        monkeypatch.setattr(train.jax, "process_index", lambda index=index: index)
        parts_of.append(train.make_batches(reading()))
    for step in (0, 3):
        for name, array in whole(step).items():
            np.testing.assert_array_equal(np.concatenate([part(step)[name] for part in parts_of]), array)


def test_dropout_gets_its_key(monkeypatch):
    config, seen = reading(), []
    source = config.data.train(0)
    batch = config.reader(config.model, source)(source, range(1))
    monkeypatch.setattr(
        stories.StoryClassifier, "apply", lambda self, variables, *story, rngs: seen.append((story[-1], rngs))
    )
    key = jax.random.key(1)
    for dropout in (None, key):
        measures.apply(config.make(config.model), {}, batch, dropout)
    assert seen == [(True, None), (False, {"dropout": key})]


@pytest.mark.parametrize("name", MODELS)
def test_the_order_of_windows_says_nothing_and_padding_neither(name):
    """Nor do the numbers of people; the logits are as read and after each loop."""
    _, _, batch, _ = made(name)
    plain = logits(name)
    assert [of_loop.shape for of_loop in plain] == [(*batch["pairs"].shape, pairs.CLASSES)] * 3
    turned = {key: batch[key][:, ::-1] for key in ("input_ids", "mentions")}
    empty = (batch["input_ids"] == 0).all(axis=(0, 2))
    assert empty.any()
    shorter = {key: batch[key][:, ~empty] for key in ("input_ids", "mentions")}
    padded = {
        key: np.pad(batch[key], ((0, 0), (0, 0), (0, 3)), constant_values=value)
        for key, value in (("input_ids", 0), ("mentions", stories.NOBODY))
    }
    for changes in (turned, shorter, padded):
        for got, want in zip(logits(name, **changes), plain, strict=True):
            np.testing.assert_allclose(got, want, atol=1e-4)
    order = np.random.default_rng(0).permutation(batch["names"].shape[1])
    number = np.r_[np.argsort(order), stories.NOBODY]  # the last is that of nobody
    moved = {"names": batch["names"][:, order], "mentions": number[batch["mentions"]]}
    for got, want in zip(logits(name, **moved), plain, strict=True):
        there = (batch["names"] >= 0)[:, :, None] & (batch["names"] >= 0)[:, None]
        back = np.argsort(order)
        np.testing.assert_allclose(got[:, back][:, :, back][there], want[there], atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_words_are_read_where_people_are_mentioned(name):
    """Another word changes what is read of the people of its window, and of nobody else."""
    _, _, batch, _ = made(name)
    ids = batch["input_ids"].copy()
    place = np.flatnonzero((batch["mentions"][0, 0] < 0) & (ids[0, 0] != 0))[1]
    ids[0, 0, place] = 5 + (ids[0, 0, place] - 5 + 1) % 20
    changed, plain = logits(name, input_ids=ids), logits(name)
    here = sorted(set(batch["mentions"][0, 0].tolist()) - {stories.NOBODY})
    assert np.abs(changed[0][0][np.ix_(here, here)] - plain[0][0][np.ix_(here, here)]).max() > 1e-4
    away = sorted(set(np.flatnonzero(batch["names"][0] >= 0).tolist()) - set(here))
    assert away
    np.testing.assert_allclose(changed[0][0][np.ix_(away, away)], plain[0][0][np.ix_(away, away)], atol=1e-5)
    for got, want in zip(changed, plain, strict=True):
        np.testing.assert_allclose(got[1:], want[1:], atol=1e-5)


def test_the_loss_has_the_facts_as_read():
    """Against a sum fact by fact, in float64; they are the first of the logits."""
    config = reading()
    batch = train.make_batches(config)(0)
    rng = np.random.default_rng(0)
    every = [rng.normal(size=(*batch["pairs"].shape, pairs.CLASSES)).astype(np.float32) for _ in range(3)]
    without = {key: value for key, value in batch.items() if key != "facts"}
    rest, whole = jax.jit(
        lambda e: (pairs.loss(e[1:], without, config.pairs), pairs.loss(e, batch, config.pairs))
    )(every)
    logs = every[0] - np.log(np.exp(every[0].astype(np.float64)).sum(-1, keepdims=True))
    total, right, count = 0.0, 0, 0
    for row, facts in enumerate(batch["facts"]):
        places = np.argwhere(facts >= 0)
        total -= np.mean([logs[row, x, y, facts[x, y]] for x, y in places])
        right += sum(every[0][row, x, y].argmax() == facts[x, y] for x, y in places)
        count += len(places)
    np.testing.assert_allclose(float(whole.numerator - rest.numerator), total, rtol=1e-4)
    assert tuple(map(int, whole.metrics["facts"])) == (right, count)
    assert "facts" not in rest.metrics


@pytest.mark.slow
def test_a_run_reads_stories(tmp_path):
    """It trains, continues and is tested, with the metrics of what it reads."""
    config = reading()
    result = train.main(config, workdir=tmp_path)["j.at"]
    assert (result.step, set(result.results["tests"])) == (4, {"2", "3", "4"})
    again = train.main(dataclasses.replace(config, steps=6), workdir=tmp_path)["j.at"]
    assert again.step == 6
    rows = runtime.metrics.read(tmp_path / "metrics.jsonl")
    assert all(0 <= row["facts"] <= 1 for row in rows if "facts" in row)
    assert sum("facts" in row for row in rows) == 3


def test_tests_are_read_at_one_size():
    """Stories of all lengths share batches, and answers return in the order of the tests."""
    config = reading()
    tests = measures.Tests(config, "j.at")
    assert tests.counts == {"2": 7, "3": 7, "4": 7}
    shapes = []

    def answer(batch):
        shapes.append(batch["input_ids"].shape)
        assert set(batch) == {"input_ids", "mentions", "names", "query", "pairs", "facts"}
        return batch["query"][:, 0]

    found = tests.answers(answer)
    assert shapes == [(8, READING.windows, READING.window)] * 3
    asked = [source[number].query[0] for source in tests.sources.values() for number in range(7)]
    assert found.tolist() == asked
    assert tests.right(tests.labels)["4"] == (7, 7)


def test_one_update_teaches_what_is_read():
    """The gradient of the loss reaches every parameter but those of words that the batch lacks."""
    config = reading(reading=READING)
    model, (_, _, batch, _) = config.make("j.at"), made("j.at")
    params = small_folnet.draw_like(jax.eval_shape(train.make_init(model), jax.random.key(0)))
    loss = train.make_loss(config, model)
    gradient = small_folnet.quickly(jax.grad(lambda p: loss(p, batch, None).numerator))(params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(jax.device_get(gradient)):
        assert np.abs(leaf).max() > 0, jax.tree_util.keystr(path)


def test_models_of_text_and_of_people_are_what_their_names_say():
    """Each has its own layers; text has an order and people have none; BERT normalizes after each layer."""
    for name in ("j.at", *parts.WITHOUT_RELATIONS):
        model = reading(name, reading=dataclasses.replace(READING, num_hidden_layers=2)).make(name)
        params = jax.eval_shape(train.make_init(model), jax.random.key(0))
        text, people = params["encoder"], params["deduction"]
        if name == "j.at":
            assert set(text["reasoner"]) == {"layers_0", "layers_1"}
            assert set(people["folnet"]["reasoner"]) == {"layers_0"}
            continue
        last = set() if name == parts.BERT else {"norm"}
        assert set(text["stack"]) == {"layer_0", "layer_1"} | last
        assert set(people["encoder"]["stack"]) == {"layer_0"} | last
        places = {key: leaf.shape for key, leaf in text.items() if key != "stack"}
        assert places == ({"distances": (32, 2)} if name == parts.T5 else {"positions": (READING.window, 8)})
        assert set(people["encoder"]) == {"stack"}


def test_what_is_exported_is_the_model_and_its_inputs():
    """Shapes, types and bounds are those of real stories."""
    config = reading()
    _, params, *_ = made("j.at")
    exportable = load.of_kinship(config, params, 6)
    source = kinship.Kinship(5, (4,))
    arrays = config.reader("j.at", source)(source, range(3))
    assert set(exportable.inputs) == {"input_ids", "mentions", "names", "query"}
    for name, described in exportable.inputs.items():
        assert tuple({"batch": 3}.get(str(size), size) for size in described.shape) == arrays[name].shape
        assert described.range is not None
        least, most = described.range
        assert least <= arrays[name].min() <= arrays[name].max() <= most
        assert described.dtype == str(arrays[name].dtype)
    found = jax.eval_shape(exportable.function, params, {name: arrays[name] for name in exportable.inputs})
    assert found["logits"].shape == (3, len(kinship.TARGETS))
    assert exportable.lengths == ()


def test_models_that_read_are_matched_in_parameters():
    """The reader and the model of people each as those of the FOLNet; `test_claims` has Transformers."""
    sizes = dataclasses.replace(SIZES, hidden_size=16, intermediate_size=32)
    wide = dataclasses.replace(READING, hidden_size=16, intermediate_size=64)
    config = dataclasses.replace(reading("j.a"), match="jmc.atp", sizes=sizes, reading=wide)
    ours = dataclasses.replace(reading("jmc.atp"), sizes=sizes, reading=wide)
    count, target = (baselines.count(of.make(of.model), *stories.EXAMPLE) for of in (config, ours))
    assert abs(count - target) <= 0.02 * target


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "rgcn"}, "model: got 'rgcn', expected a FOLNet's operators or one of 'bert', "),
        ({"model": "bert"}, "pairs.people: got 'alike', expected names or marks with the model 'bert'"),
        (
            {"pairs.people": "marked", "pairs.supervised": False},
            "pairs.people: got 'marked', expected",
        ),
        ({"data.pool": 0}, "data.pool: got 0, expected at least 1 with pairs.read and data.form='text'"),
        ({"reading.window": 7}, "reading.window: got 7, expected at least 8"),
        ({"reading.windows": 0}, "reading.windows: got 0, expected at least 1"),
        ({"reading.num_hidden_layers": 0}, "reading: num_hidden_layers: got 0"),
    ],
)
def test_what_cannot_be_read_is_refused(changes, message):
    config = reading()
    for name, value in changes.items():
        *path, last = name.split(".")
        setattr(functools.reduce(getattr, path, config), last, value)
    with pytest.raises(ValueError, match="^" + message.replace("(", r"\(")):
        config.validate()


def test_published_stories_need_a_model_that_answers_for_pairs(tmp_path):
    config = reading()
    data = dataclasses.replace(config.data, clutrr=str(tmp_path))
    with pytest.raises(ValueError, match=r"data.form: got 'text', expected 'graph' with data.clutrr"):
        dataclasses.replace(config, pairs=PairConfig(), data=data).validate()
