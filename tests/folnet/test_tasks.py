"""All tasks have one interface."""

import jax
import numpy as np
import pytest

from folnet import objective, tasks
from tests.folnet import small_tasks


def test_names():
    """Every task by its name, and what is asked for that is none."""
    assert " ".join(tasks.TASKS) == "mnli qqp qnli sst2 cola stsb mrpc rte folio clutrr23 clutrr234 squad2"
    assert all(task.name == name for name, task in tasks.TASKS.items())
    assert tasks.open_task("rte") is tasks.TASKS["rte"]
    with pytest.raises(ValueError, match=r"task must be one of mnli, qqp, .*squad2, got 'wnli'"):
        tasks.open_task("wnli")


@pytest.mark.parametrize("task", tasks.TASKS.values(), ids=tasks.TASKS)
def test_what_every_task_says(task):
    """Length as in the paper, splits to train and choose on, how to get it; before anything else is done."""
    assert task.max_length == {"squad2": 384, "folio": 512}.get(
        task.name, 256 if "clutrr" in task.name else 128
    )
    assert task.splits[0] == "train"
    assert task.splits[1].startswith("validation")
    assert task.metrics
    with pytest.raises(
        ValueError, match=r"directory /nowhere does not exist; it lacks .* Get it: .*https://"
    ):
        task.check("/nowhere")
    for split in task.splits:
        with pytest.raises(ValueError, match=f"it lacks {task.name}'s {split}: "):
            task.examples("/nowhere", split)


def test_what_glue_gives_is_what_the_losses_take(tmp_path):
    """Labels of training are classes of the model or numbers; hidden ones are ignored."""
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
