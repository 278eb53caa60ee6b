"""Models of pairs on tasks that ask for relations, and a suite of tasks and models."""

from experiments import runtime
from experiments.reasoning import claims, train
from experiments.reasoning.config import BRIDGES, DISTANCES, PUBLISHED, Config, get_config


def _title(config: Config) -> str:
    if config.model:
        return f"a {config.model} of the reasoning suite for {config.task}"
    if config.task == DISTANCES:
        return f"a FOLNet with the operators {config.operators} for distances in graphs"
    if config.task == BRIDGES:
        kind = "simplicial" if config.virtual_entities else "relational"
        return f"the trunk of a {kind} agent that finds the bridge on a board"
    if config.task == PUBLISHED:
        return "a Transformer that composes relations, in a published setting"
    if config.every:
        return f"a byte-level language model whose every {config.every}th layer attends to pairs"
    return "a byte-level language model of dot-product attention"


EXPERIMENT = runtime.Experiment(
    config=Config,
    presets=get_config,
    main=train.main,
    abstract_state=train.abstract_state,
    card=runtime.Card(
        title=_title,
        data="Of language models: the language reference included with Python 3 (`pydoc_data.topics`; Python "
        "Software Foundation License). All other problems are drawn at random.",
        limits="Half a million characters of one kind of text, or problems of one kind; a language "
        "model writes nothing useful.",
    ),
    claims=claims.CLAIMS,
)
