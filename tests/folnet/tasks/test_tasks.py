"""The interface that all tasks share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import folnet
from folnet import objective, tasks
from folnet.tasks import prompts as task_prompts
from tests.folnet import small, small_tasks


def test_names():
    """Every task is found by its name, and other names are refused."""
    assert " ".join(tasks.TASKS) == "mnli qqp qnli sst2 cola stsb mrpc rte folio clutrr23 clutrr234 squad2"
    assert all(task.name == name for name, task in tasks.TASKS.items())
    assert tasks.open_task("rte") is tasks.TASKS["rte"]
    with pytest.raises(ValueError, match=r"task: got 'wnli', expected one of 'mnli', 'qqp', .*'squad2'"):
        tasks.open_task("wnli")


@pytest.mark.parametrize("task", tasks.TASKS.values(), ids=tasks.TASKS)
def test_what_every_task_says(task):
    """Lengths as in the paper, splits to train and validate on, and how to get the files."""
    assert task.max_length == {"squad2": 384, "folio": 512}.get(
        task.name, 256 if "clutrr" in task.name else 128
    )
    assert task.splits[0] == "train"
    assert task.splits[1].startswith("validation")
    assert task.metrics
    with pytest.raises(ValueError, match=r"directory: got /nowhere .*, expected .* Get it: .*https://"):
        task.check("/nowhere")
    for split in task.splits:
        with pytest.raises(ValueError, match=f"expected {task.name}'s {split}: "):
            task.examples("/nowhere", split)


def test_what_glue_gives_is_what_the_losses_take(tmp_path):
    """Training labels are the model's classes or numbers; hidden labels are ignored."""
    small_tasks.glue(tmp_path)
    tokenizer = small_tasks.tokenizer()
    sequence_loss, cross_entropy = (
        jax.jit(objective.sequence_classification),
        jax.jit(objective.cross_entropy),
    )
    for name, classes in (("mnli", 3), ("stsb", 1)):
        task = tasks.SEQUENCE_TASKS[name]
        labels = task.features(task.examples(tmp_path, "train"), tokenizer, 16).label
        loss = sequence_loss(np.zeros((len(labels), classes), np.float32), labels)
        assert int(loss.count) == len(labels)
        mean = np.mean(np.square(labels)) if name == "stsb" else np.log(classes)
        assert float(loss.sum) / len(labels) == pytest.approx(mean, rel=1e-5)
    cola = tasks.SEQUENCE_TASKS["cola"]
    hidden = cola.features(cola.examples(tmp_path, "test"), tokenizer, 16).label
    assert int(cross_entropy(np.zeros((len(hidden), 2), np.float32), hidden).count) == 0


@pytest.mark.slow
def test_from_files_through_models_to_scores(tmp_path):
    """Features fit the heads, and their outputs fit the scores, for a class, a span and a masked word."""
    small_tasks.glue(tmp_path)
    small_tasks.write_squad(tmp_path)
    tokenizer = small_tasks.tokenizer()
    config = small.config(vocab_size=tokenizer.padded_vocab_size, num_labels=3)

    def run(model, features, **more):
        inputs = [
            jnp.asarray(getattr(features, name)) for name in ("input_ids", "token_type_ids", "attention_mask")
        ]
        params = jax.jit(model.init)(jax.random.key(0), *inputs)["params"]
        return jax.jit(lambda params: model.apply({"params": params}, *inputs, **more))(params)

    mnli = tasks.SEQUENCE_TASKS["mnli"]
    dev = mnli.examples(tmp_path, "validation_matched")
    logits = run(folnet.FOLNetForSequenceClassification(config), mnli.features(dev, tokenizer, 32)).logits
    guesses = mnli.predict(np.asarray(logits))
    scores = mnli.score(dev, guesses)
    path = mnli.write_predictions(tmp_path, "validation_matched", dev, guesses)
    assert mnli.score(dev, mnli.read_predictions(path, dev)) == scores

    questions = tasks.SQUAD.examples(tmp_path, "validation")
    windows = tasks.SQUAD.features(questions, tokenizer, 200)
    out = run(folnet.FOLNetForQuestionAnswering(config), windows)
    answers = tasks.SQUAD.answers(
        questions, windows, np.asarray(out.start_logits), np.asarray(out.end_logits)
    )
    assert len(answers) == len(questions)
    assert tasks.SQUAD.score(questions, answers)["f1/best"] >= tasks.SQUAD.score(questions, answers)["f1"]

    prompt = tasks.PROMPTS["mnli"]
    prompts = tasks.prompt_features(prompt, dev, tokenizer, 32)
    masked = folnet.FOLNetForMaskedLM(config)
    words = run(masked, prompts, mlm_positions=jnp.asarray(prompts.mask_position)[:, None]).logits[:, 0]
    found = task_prompts.class_logits(np.asarray(words), task_prompts.label_ids(prompt, tokenizer))
    assert 0 <= mnli.score(dev, task_prompts.predict(mnli, found))["accuracy"] <= 1
    everywhere = run(masked, prompts).logits[np.arange(len(dev)), prompts.mask_position]
    np.testing.assert_allclose(everywhere, words, atol=1e-5)
