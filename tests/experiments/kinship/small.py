"""A kinship run that takes seconds: chains of 2 to 4 facts, models of a few hundred parameters."""

import dataclasses
from pathlib import Path
from typing import Any

from experiments.kinship.config import Config
from experiments.kinship.parts import DataConfig, PairConfig, SizeConfig
from folnet import kinship
from logic_zoo.writing import write_whole

SIZES = SizeConfig(
    hidden_size=8,
    relation_size=4,
    num_hidden_layers=1,
    num_attention_heads=2,
    head_size=4,
    intermediate_size=12,
    relation_intermediate_size=8,
)
DATA = DataConfig(train_lengths=(2, 3), test_lengths=(2, 3, 4), test_problems=7)


def small(**fields: Any) -> Config:
    """Returns a config for a model with two operators and a few steps."""
    chosen: dict[str, Any] = {"model": "j.a", "match": "jm.ap", "metric_lengths": (3, 4)}
    chosen |= {"data": dataclasses.replace(DATA), "sizes": dataclasses.replace(SIZES)}
    chosen |= {"batch_size": 4, "steps": 4, "log_every": 2, "checkpoint_every": 2, "eval_every": 2}
    chosen |= {"eval_batch_size": 8, "warmup_steps": 2}
    return Config(**(chosen | fields))


def with_data(**fields: Any) -> Config:
    """Returns `small` with these fields of `data` replaced."""
    return small(data=dataclasses.replace(DATA, **fields))


LOOPED = PairConfig(read=True, supervised=True, loops=2, test_loops=3, injection=0.5)


def looped(**fields: Any) -> Config:
    """Returns `small` with a looped FOLNet whose training problems have distractors."""
    config = small(model="j.at", match="", pairs=dataclasses.replace(LOOPED))
    data = dataclasses.replace(config.data, irrelevant=2, varied=True)
    return dataclasses.replace(config, data=data, **fields)


def published_problems() -> dict[str, list[kinship.Problem]]:
    """Returns the problems of each of the files of `published`, as many as a test happens to have."""
    counts = {"1.2,1.3_train": [(2, 4), (3, 4)], "1.2_test": [(2, 3)], "1.3_test": [(3, 5)]}
    counts |= {f"1.{k}_test": [(k, 1)] for k in range(4, 11)}
    return {
        name: [problem for k, n in parts for problem in kinship.Kinship(7, (k,)).draw(range(n))]
        for name, parts in counts.items()
    }


def published(folder: Path) -> Config:
    """Writes graphs into files as the authors of CLUTRR do, and returns a config of a looped FOLNet."""
    header = ",story,query,target,task_name,story_edges,edge_types,query_edge"
    for name, problems in published_problems().items():
        lines = []
        for row, problem in enumerate(problems):
            edges, types = [(x, y) for x, _, y in problem.facts], kinship.relations_of(problem)
            lines.append(
                f'{row},x,x,{problem.answer_name},task_1.{problem.length},"{edges}",'
                f'"{[kinship.RELATIONS[relation] for relation in types]}","{problem.query}"'
            )
        write_whole(folder / f"{name}.csv", "\n".join([header, *lines, ""]))
    data = dataclasses.replace(DATA, clutrr=str(folder))
    return small(data=data, match="", pairs=dataclasses.replace(LOOPED))
