"""Presets match Tables 3 and 8, the baseline matches in parameters, and invalid fields are reported."""

import dataclasses

import jax
import pytest

from experiments import runtime
from experiments.folnet_pretrain.config import get_config
from experiments.folnet_pretrain.train import make_init
from folnet import FOLNetConfig, table3
from folnet.tokenization import WordPieceTokenizer
from tests.experiments.folnet_pretrain.small import MODEL, small, with_data, write_text

PRESETS = ("quick", "base_16gb", "base_160gb", "large_160gb", "ablation", "bert")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text"))


def parameters(config):
    model = config.model.make()
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(make_init(model), jax.random.key(0))))


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_valid(preset):
    get_config(preset).validate()


@pytest.mark.parametrize(
    ("preset", "lr", "steps", "layers", "width", "heads", "objective"),
    [
        ("base_16gb", 1e-2, 8_000, 12, 768, 12, "nsp"),
        ("base_160gb", 2e-3, 128_000, 12, 768, 12, "sop"),
        ("large_160gb", 1.6e-3, 128_000, 24, 1024, 16, "sop"),
    ],
)
def test_presets_are_table_8(preset, lr, steps, layers, width, heads, objective):
    config = get_config(preset)
    model, text = config.model, config.data
    assert (config.lr, config.steps, config.batch_size, config.warmup) == (lr, steps, 131_072, 0.01)
    assert (config.schedule, config.weight_decay) == ("linear", 0.01)
    assert (config.b1, config.b2, config.eps) == (0.9, 0.999, 1e-6)
    assert (model.num_hidden_layers, model.hidden_size, model.num_attention_heads) == (layers, width, heads)
    assert (model.relation_size, model.relation_intermediate_size, model.max_distance) == (64, 256, 64)
    assert (model.intermediate_size, model.head_size) == (4 * width, 64)
    assert (model.hidden_dropout_prob, model.attention_probs_dropout_prob) == (0.1, 0.1)
    assert (text.length, text.objective, model.operators, model.dtype) == (
        128,
        objective,
        "jmc.atp",
        "bfloat16",
    )


def test_presets_are_as_their_documentation_says():
    """Batches are processed in parts of 256 examples (BERT: 1,024, Large: 128), on prepared text."""
    parts = {"base_16gb": 256, "base_160gb": 256, "large_160gb": 128, "ablation": 256, "bert": 1024}
    for name, size in parts.items():
        config = get_config(name)
        assert config.batch_size == size * config.accumulate, name
        assert config.data.directory == ("data/160gb" if "160" in name else "data/16gb")
        assert config.model.remat == ("none" if name == "bert" else "relation_boolean")
        assert (config.baseline, config.mask_padding, config.data.mask_rate) == ("none", False, 0.15)
        assert (config.data.objective == "nsp") == ("160" not in name)
        assert config.row == (13 if name == "ablation" else 0)
    quick = get_config("quick")
    assert (quick.steps, quick.batch_size, quick.data.length) == (500, 32, 32)
    assert [quick.lr, quick.for_baseline().lr] == [2e-2, 1e-2]
    assert [parameters(of) for of in (quick, quick.for_baseline())] == [393_666, 393_772]


def test_the_ablation_has_the_rows_of_table_3():
    """A row sets its own fields at any scale; all others are kept."""
    for row in range(3, 16):
        config = dataclasses.replace(get_config("ablation"), row=row, lr=0.5)
        config.model = dataclasses.replace(config.model, hidden_size=32, num_hidden_layers=2)
        config.validate()
        found, wanted = config.resolved(), table3(row)
        settings = found.model.settings(found.data.pretrain_loss)
        assert isinstance(settings, FOLNetConfig)
        changed = {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "dtype": "bfloat16",
            "remat": "relation_boolean",
        }
        assert settings == wanted.replace(**changed)
        assert (found.lr, found.resolved()) == (0.5, found)
    bert = dataclasses.replace(get_config("ablation"), row=2)
    bert.validate()
    assert bert.resolved().model.settings("MLM.NSP") == get_config("bert").model.settings("MLM.NSP")
    with pytest.raises(ValueError, match="row: got 16, expected 3 to 15"):
        dataclasses.replace(bert, row=16).validate()


def test_the_baseline_has_as_many_parameters(source):
    config = small(source, baseline="transformer", lr=0.1, baseline_lr=0.05, steps=100)
    counts = [parameters(of) for of in (config, config.for_baseline())]
    assert abs(counts[1] - counts[0]) <= 2 * MODEL.hidden_size + 1
    equal = config.for_baseline()
    assert (equal.lr, equal.baseline, equal.steps, equal.max_seconds) == (0.05, "none", 100, 0)
    on = config.for_baseline(seconds=7.5)
    assert (on.max_seconds, on.schedule_steps) == (7.5, 100)
    assert on.steps > 10_000
    rates = [of.make_schedule()(step) for of in (equal, on) for step in (0, 50)]
    assert rates[:2] == rates[2:]
    linear = dataclasses.replace(config, schedule="linear").for_baseline(seconds=7.5)
    assert (linear.steps, linear.max_seconds) == (100, 0)
    transformer = dataclasses.replace(config, model=config.for_baseline().model)
    with pytest.raises(ValueError, match=r"model.name: got 'transformer', expected 'folnet' for a baseline"):
        transformer.for_baseline()


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_vocabulary_is_a_file_or_a_folder(source, tmp_path, lowercase):
    """A folder says whether text is lowercased."""
    config = small(source).data
    made = WordPieceTokenizer.train(["some words of a text"], 40, lowercase=lowercase)
    made.save(tmp_path / "vocab.txt")
    made.save_pretrained(tmp_path / "folder")
    for path in ("vocab.txt", "folder"):
        of = dataclasses.replace(config, vocabulary=str(tmp_path / path), lowercase=lowercase)
        found = of.tokenizer_of([])
        assert (found.vocabulary, found.lowercase) == (made.vocabulary, lowercase)
    with pytest.raises(ValueError, match=f"data.lowercase: got {not lowercase}, expected {lowercase}"):
        dataclasses.replace(of, lowercase=not lowercase).tokenizer_of([])
    learned = dataclasses.replace(config, lowercase=lowercase).tokenizer_of(["some words"])
    assert learned.lowercase == lowercase


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        *(
            ({name: -0.5}, f"{name}: got -0.5, expected at least 0")
            for name in ("lr", "baseline_lr", "eps", "weight_decay", "clip")
        ),
        *(
            ({name: least - 1}, f"{name}: got {least - 1}, expected at least {least}")
            for name, least in (
                ("eval_batches", 0),
                ("blanks", 0),
                ("schedule_steps", 0),
                ("row", 0),
                ("eval_batch_size", 1),
                ("eval_masks", 1),
            )
        ),
        ({"b1": 1.0}, "b1: got 1.0, expected 0 <= b1 < 1"),
        ({"b2": -0.1}, "b2: got -0.1, expected 0 <= b2 < 1"),
        ({"warmup": -0.1}, "warmup: got -0.1, expected a fraction"),
        ({"data.held_out": 1.0}, "data.held_out: got 1.0, expected 0 < held_out < 1"),
        ({"data.mask_rate": 1.5}, "data.mask_rate: got 1.5, expected 0 < mask_rate"),
        ({"data.cut": "end"}, "data.cut: got 'end', expected one of '', 'middle', 'sentence'"),
        (
            {"baseline": "transformer", "model.name": "transformer", "model.relative_position": "none"},
            "baseline: got 'transformer', expected 'none' with model.name='transformer'",
        ),
        ({"warmup": 2.0}, "warmup: got 2.0, expected a fraction"),
        ({"b2": 1.0}, "b2: got 1.0, expected 0 <= b2 < 1"),
        ({"schedule": "cosine"}, "schedule: got 'cosine', expected one of 'released', 'linear'"),
        ({"schedule": "linear", "schedule_steps": 3}, "steps: got 4, expected at most schedule_steps=3"),
        ({"schedule": "linear", "schedule_steps": 1}, "steps: got 4, expected at most schedule_steps=1"),
        ({"baseline": "lstm"}, "baseline: got 'lstm', expected one of 'none', 'transformer'"),
        ({"accumulate": -1}, "accumulate: got -1, expected at least 0"),
        ({"data.objective": "mlm"}, "data.objective: got 'mlm', expected one of"),
        ({"data.held_out": 0.0}, "data.held_out: got 0.0, expected 0 < held_out < 1"),
        ({"data.mask_rate": 0.0}, "data.mask_rate: got 0.0, expected 0 < mask_rate"),
        ({"data.length": 4}, "data.length: got 4, expected at least 8"),
        ({"data.packing": "tight"}, "data.packing: got 'tight', expected one of"),
        ({"model.name": "lstm"}, "model.name: got 'lstm', expected one of 'folnet', 'transformer'"),
        ({"model.operators": "a.j"}, r"model.operators: got 'a\.j', expected .* 'a' \(assoc\) belongs"),
        ({"model.hidden_size": 0}, "model.hidden_size: got 0, expected an integer of at least 1"),
        ({"model.absolute_position": True, "data.length": 32}, "data.length: got 32, expected at most"),
        ({"model.name": "transformer"}, "model.relative_position: got 'folnet', expected one of"),
    ],
)
def test_invalid_fields_are_reported(source, fields, message):
    config = small(source)
    for name, value in fields.items():
        *holder, field = name.split(".")
        setattr(getattr(config, holder[0]) if holder else config, field, value)
    with pytest.raises(ValueError, match=message):
        config.validate()


@pytest.mark.parametrize("fields", [{"b1": 0.0, "b2": 0.0, "warmup": 0.0}, {"warmup": 1.0, "lr": 0.0}])
def test_bounds_themselves_are_valid(source, fields):
    dataclasses.replace(small(source), **fields).validate()
    with_data(source, mask_rate=1.0, length=16).validate()


def test_rows_of_pairs_must_be_split_evenly(source):
    with pytest.raises(ValueError, match=r"data\.length: got 18, expected a multiple of 4"):
        with_data(source, length=18).check_layout(_Anything(model=4))
    with pytest.raises(ValueError, match="mesh: got data:3,model:1 for 3 devices"):
        small(source).check_layout(runtime.Layout(data=3))


class _Anything(runtime.Layout):
    """A layout whose own checks always pass."""

    def check(self, batch_size, devices):
        pass
