"""The training steps to compare: model, loss, optimizer and batches of each paper's experiment.

A step of ours is what a run of the experiment computes for a batch, with the number of parts that the run
would choose (`experiments.runtime.chunks`). Models and optimizers are those of the presets `paper`,
`base_16gb` and `authors_copy`, and so are the batches of the agents and the recurrent network. Questions and
texts have smaller batches, so that a step takes seconds on two cores. Everything is float32, without dropout
or rematerialization.

The time of a step includes moving its batch to the device, also for agents and sequences, which a run draws
there.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from benchmarks import steps
from benchmarks.chunks import changed
from benchmarks.training import folnet_pretrain as texts
from experiments import boxworld, folnet_pretrain, llrnn, mathematics
from experiments.boxworld.engine import Impala
from experiments.folnet_pretrain import train as folnet_train
from experiments.llrnn import train as llrnn_train
from experiments.mathematics import train as mathematics_train
from experiments.runtime import chunks, training
from folnet import FOLNetConfig
from llrnn import tasks
from simplicial import rollout
from simplicial.learner import at_once, cut

BATCHES = 20
Batch = dict[str, Any]
"""NumPy arrays by name."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model in training, to be compared.

    Attributes:
        name: name of the row.
        kind: key by which libraries select their program.
        shape: the sizes as text.
        batches: `BATCHES` batches of arrays by name, on the host.
        start: returns our program at the start of training; each call compiles it.
        settings: sizes that the libraries' models take.
        loss: settings of the libraries' loss.
        optimizer: settings of the libraries' optimizer.
        without_effect: a regular expression found in the paths of parameters that do not change the loss.
            Adam scales rounding errors of their gradients to updates of full size, and libraries differ in
            whether decay applies to parameters without gradients.
    """

    name: str
    kind: str
    shape: str
    batches: tuple[Batch, ...]
    start: Callable[[], "Ours"]
    settings: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    loss: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    without_effect: str = "(?!)"  # matches nothing


class Functions(NamedTuple):
    """Our step as functions, with `carried` parameters, optimizer's state and so on.

    Attributes:
        carried: at the start of training.
        place: moves a host batch to the device; returns the further arguments of a step.
        compile: returns the compiled step for such arguments: from `carried`, which is donated, and arguments
            to the new `carried` and a report.
        params: returns the nested parameters of `carried`.
        loss: returns the loss, a number, from a report.
        gradient: the gradient as a function of parameters and such arguments, in one part, for counting.
        parts: number of parts of a batch in `compile`.
    """

    carried: Any
    place: Callable[[Batch], tuple[Any, ...]]
    compile: Callable[..., Any]
    params: Callable[[Any], Any]
    loss: Callable[[Any], Any]
    gradient: Callable[..., Any]
    parts: int


class Ours:
    """Our program: calls make a step each."""

    def __init__(self, functions: Functions, batch: Batch):
        """Compiles the step for batches like the given one."""
        self.functions, self.carried, placed = functions, functions.carried, functions.place(batch)
        self._start = jax.tree.map(jnp.copy, self.carried)
        self.compiled = functions.compile(self.carried, *placed)
        memory = self.compiled.memory_analysis()
        self.facts = {
            "parameters": sum(array.size for array in self.params().values()),
            "parts": functions.parts,
            "peak_bytes": steps.peak_bytes(memory),
            "operations": steps.counted(functions.gradient, functions.params(self.carried), *placed),
        }

    def __call__(self, batch: Batch) -> Any:
        """Makes a step on a host batch; `jax.block_until_ready` can wait for the report."""
        self.carried, report = self.compiled(self.carried, *self.functions.place(batch))
        return report

    def nudge(self, seed: int) -> None:
        """Returns to the start with every number changed by a rounding error up or down, at random."""
        generator = np.random.default_rng(seed)

        def nudged(x):
            if not jnp.issubdtype(x.dtype, jnp.floating):
                return jnp.copy(x)
            return x * (1 + generator.choice([-1, 1], x.shape) * jnp.finfo(x.dtype).eps).astype(x.dtype)

        self.carried = jax.tree.map(nudged, self._start)

    def loss(self, result: Any) -> float:
        """Returns the loss before the step from its report."""
        return float(self.functions.loss(result))

    def params(self) -> dict[str, np.ndarray]:
        """Returns copies of the parameters by path, such as "attention/query/kernel"."""
        nested = self.functions.params(self.carried)
        return {path: np.array(leaf) for path, leaf in traverse_util.flatten_dict(nested, sep="/").items()}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The configs of all subjects; everything else follows from them.

    Attributes:
        agents: of the simplicial agent; the relational one differs in its kind.
        transformer: with a single bucket.
        folnet: its data's length is that of the texts.
        ntm: with the task and the lengths of its sequences.
    """

    agents: boxworld.Config
    transformer: mathematics.Config
    folnet: folnet_pretrain.Config
    ntm: llrnn.Config


PAPERS = Sizes(
    agents=boxworld.get_config("paper"),
    transformer=changed(
        mathematics.get_config("paper"),
        {"batch_size": 16, "data.buckets": ("64x14",), "model.dtype": "float32"},
    ),
    folnet=changed(
        folnet_pretrain.get_config("base_16gb"),
        {
            "accumulate": 0,  # chosen for this machine, as for the others
            "batch_size": 2,
            "model.dtype": "float32",
            "model.remat": "none",
            "model.hidden_dropout_prob": 0.0,
            "model.attention_probs_dropout_prob": 0.0,
        },
    ),
    ntm=llrnn.get_config("authors_copy"),
)
SMALL = Sizes(
    agents=changed(
        boxworld.get_config("quick"),
        {
            "agent.features": 16,
            "agent.two_simplicial_features": 6,
            "agent.head_features": (8, 8),
            "agent.input_centre": 0.0,
            "agent.input_scale": 255.0,
            "board.horizon": 3,
            "batch_size": 2,
            "groups": 1,
            "unroll": 5,
            "lr": 2e-4,
        },
    ),
    transformer=changed(
        PAPERS.transformer,
        {
            "batch_size": 3,
            "data.buckets": ("6x5",),
            "model.features": 16,
            "model.filter_features": 24,
            "model.num_heads": 2,
            "model.num_layers": 1,
        },
    ),
    folnet=changed(
        PAPERS.folnet,
        {
            "data.length": 9,
            "model.vocab_size": 40,
            "model.hidden_size": 16,
            "model.relation_size": 6,
            "model.num_hidden_layers": 1,
            "model.num_attention_heads": 2,
            "model.head_size": 4,
            "model.intermediate_size": 20,
            "model.relation_intermediate_size": 10,
            "model.max_distance": 3,
        },
    ),
    ntm=changed(
        PAPERS.ntm,
        {
            "batch_size": 3,
            "cell.features": 6,
            "cell.memory_size": 8,
            "cell.memory_width": 3,
            "task_options.train_lengths": (2, 3),
            "lr": 1e-3,
        },
    ),
)
"""Tiny sizes to check that everything runs, not to measure. Episodes are truncated within an unroll."""
SIZES = {"small": SMALL, "papers": PAPERS}


def subjects(sizes: Sizes) -> dict[str, Callable[[], Subject]]:
    """Returns functions that make all subjects, by name; the fastest steps come first."""
    return {
        "Neural Turing Machine": lambda: ntm(sizes.ntm),
        "relational agent": lambda: agent(changed(sizes.agents, {"agent.kind": "relational"})),
        "simplicial agent": lambda: agent(sizes.agents),
        "TP-Transformer": lambda: transformer(sizes.transformer),
        "FOLNet": lambda: folnet(sizes.folnet),
    }


def agent(config: boxworld.Config) -> Subject:
    """Returns an update of the learner on unrolls of the initial policy in the config's environments."""
    config = changed(config, {"updates": BATCHES})
    config = chunks.resolved(config, None, config.init_params)
    learner = Impala(config).learner
    params = jax.jit(config.init_params)(jax.random.key(config.seed))
    batches = tuple(_unrolls(learner, params))

    def start():
        functions = Functions(
            carried=jax.tree.map(jnp.array, (params, learner.optimizer.init(params))),  # copies to donate
            place=lambda batch: (jax.device_put(rollout.Trajectories(**batch)),),
            compile=lambda *given: jax.jit(learner.learn, donate_argnums=0).lower(*given).compile(),
            params=lambda carried: carried[0],
            loss=lambda report: report[0].total,
            gradient=dataclasses.replace(learner, summed=at_once).gradient,
            parts=config.accumulate,
        )
        return Ours(functions, batches[0])

    module, shape = config.agent.make(), batches[0]["observation"].shape
    return Subject(
        f"{config.agent.kind} agent",
        "agent",
        f"{shape[0]} unrolls of {shape[1]} pictures of {shape[2]} x {shape[3]}",
        batches,
        start,
        {
            "features": module.features,
            "pairs": module.two_simplicial_features,
            "virtual": module.num_virtual_entities,
            "blocks": module.num_blocks,
            "heads": module.num_heads,
            "pair_heads": module.num_two_simplicial_heads,
            "convolutions": module.conv_features,
            "dense": module.head_features,
            "actions": module.num_actions,
        },
        {
            "lr": config.lr,
            "decay": config.decay,
            "epsilon": config.epsilon,
            "initial": 1.0,
            "clip": config.clip,
        },
        {name: getattr(config, name) for name in ("discount", "entropy_cost", "value_cost")},
    )


def _unrolls(learner: Any, params: Any) -> Iterator[Batch]:
    """Yields the batches of an iteration in which the actors start new episodes."""
    state = learner.init(params, jax.random.key(0))

    def act(actors, key):
        return rollout.unroll(learner.policy, params, learner.environment, actors, key, learner.steps)[1]

    found = cut(jax.jit(jax.vmap(act))(state.actors, state.keys), learner.updates)
    for update in range(learner.updates):
        yield {name: np.array(array[update]) for name, array in vars(found).items()}


def fitted(task: training.Task, batches: tuple[Batch, ...], kind: Callable[..., Any] = dict) -> Callable:
    """Returns `Subject.start` for a task that `runtime.fit` trains; `kind` makes its batches of arrays."""

    def start():
        program = training.Program(task, "jit")

        def gradient(params, batch, key):
            batch = {**batch, **task.totals(batch)} if task.totals else batch
            return training.local_gradient(task.loss, params, batch, jax.random.wrap_key_data(key))

        functions = Functions(
            carried=program.place(program.initial()),
            place=lambda batch: (program.place_batch(kind(**batch)), program.key),
            compile=lambda state, batch, _: program.compile_step(state, batch),
            params=lambda carried: carried.params,
            loss=lambda report: np.divide(*report.ratios["loss"]),
            gradient=gradient,
            parts=task.accumulate,
        )
        return Ours(functions, batches[0])

    return start


def transformer(config: mathematics.Config) -> Subject:
    """Returns the TP-Transformer on random questions and answers that fill the bucket to various degrees."""
    model = config.model.make()
    problem = mathematics_train.problem(config, model)
    config = chunks.resolved(config, None, problem["init"])
    task = training.Task(config.seed, config.batch_size, **problem, accumulate=config.accumulate)
    ((source, target),), rng = config.data.shapes(), np.random.default_rng(0)

    def symbols(length):
        drawn = rng.integers(3, model.vocab_size, (config.batch_size, length), np.int32)
        real = np.arange(length) < rng.integers(length // 2, length, (config.batch_size, 1), endpoint=True)
        return np.where(real, drawn, np.int32(model.pad))

    batches = tuple({"source": symbols(source), "target": symbols(target)} for _ in range(BATCHES))
    return Subject(
        "TP-Transformer",
        "tp_transformer",
        f"{config.batch_size} questions of {source} symbols, answers of {target}",
        batches,
        fitted(task, batches),
        {
            "symbols": model.vocab_size,
            "features": model.features,
            "heads": model.num_heads,
            "hidden": model.filter_features,
            "layers": model.num_layers,
            "longest": source,
            "pad": model.pad,
        },
        {"lr": config.lr, "betas": (config.b1, config.b2), "clip": config.clip},
        without_effect="key/bias$",  # which adds the same number to the logits of all keys
    )


def folnet(config: folnet_pretrain.Config) -> Subject:
    """Returns FOLNet with both losses of pretraining, on random text."""
    config = config.resolved()
    model, settings = config.model.make(config.data.pretrain_loss), config.model.settings()
    assert isinstance(settings, FOLNetConfig)
    init = folnet_train.make_init(model)
    config = chunks.resolved(config, None, init)
    task = training.Task(
        config.seed,
        config.batch_size,
        init,
        folnet_train.make_loss(config, model),
        config.make_optimizer(),
        accumulate=config.accumulate,
        totals=folnet_train.totals,
    )
    batches = tuple(
        jax.tree.map(np.array, texts.examples(settings, config.batch_size, config.data.length, seed))
        for seed in range(BATCHES)
    )
    return Subject(
        "FOLNet",
        "folnet",
        f"{config.batch_size} texts of {config.data.length} tokens, {settings.num_hidden_layers} layers",
        batches,
        fitted(task, batches),
        {
            "words": settings.vocab_size,
            "segments": settings.type_vocab_size,
            "distance": settings.max_distance,
            "layers": settings.num_hidden_layers,
            "properties": settings.hidden_size,
            "relations": settings.relation_size,
            "heads": settings.num_attention_heads,
            "size": settings.head_size,
            "hidden": settings.intermediate_size,
            "pair_hidden": settings.relation_intermediate_size,
            "eps": settings.layer_norm_eps,
        },
        {
            "lr": config.lr,
            "steps": config.schedule_steps,
            "rising": round(config.warmup * config.schedule_steps),
            "betas": (config.b1, config.b2),
            "eps": config.eps,
            "weight_decay": config.weight_decay,
            "clip": config.clip,
        },
        # The heads read no relations.
        without_effect=f"layers_{settings.num_hidden_layers - 1}/(assoc|trans|prod|bool_binary)/",
    )


def ntm(config: llrnn.Config) -> Subject:
    """Returns the Neural Turing Machine on the sequences of the config's task."""
    task = llrnn_train.make_training(config)
    config = chunks.resolved(config, None, task.init)
    task = dataclasses.replace(task, accumulate=config.accumulate)
    assert task.sample is not None
    sample, keys = jax.jit(task.sample), jax.random.split(jax.random.key(config.seed), BATCHES)
    batches = tuple(
        {name: np.array(array) for name, array in vars(sample(key, step)).items()}
        for step, key in enumerate(keys)
    )
    cell: Any = config.cell
    of = config.make_task()
    assert (cell.erase, cell.sharpen, cell.read, cell.activation) == (True, True, "previous", "tanh")
    return Subject(
        "Neural Turing Machine",
        "ntm",
        f"{config.batch_size} sequences of {batches[0]['mask'].shape[1]} symbols",
        batches,
        fitted(task, batches, tasks.Batch),
        {
            "inputs": sum(of.fields),
            "features": cell.features,
            "locations": cell.memory_size,
            "width": cell.memory_width,
            "powers": cell.powers,
            "outputs": of.num_outputs,
        },
        # optax's RMSProp with its default epsilon
        {
            "lr": config.lr,
            "decay": 0.9,
            "momentum": 0.9,
            "epsilon": 1e-8,
            "initial": 0.0,
            "clip": config.clip,
        },
    )
