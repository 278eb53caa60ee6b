"""Readers of weights for the fuzz: PyTorch files, safetensors, packed runs, checkpoints, exported models."""

import dataclasses
import functools
import io
import json
import pickle
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.reliability.reader import Reader, canonical, write_lines
from benchmarks.reliability.subjects import drawn
from experiments.exporting import Exportable, Input, Options, Output, export_model, run_exported
from experiments.exporting.options import Where
from experiments.folnet_finetune import config as finetune_configs
from experiments.folnet_finetune.model import begin, make, misfits
from experiments.folnet_pretrain import convert as convert_folnet
from experiments.runtime import packing, torch_files
from experiments.runtime.checkpoints import CheckpointError, Checkpoints
from experiments.runtime.workdir import write_json
from folnet import FOLNet
from folnet.tokenization import SPECIAL_TOKENS, WordPieceTokenizer
from tp_transformer import TPTransformer
from tp_transformer.mathematics import DEFAULT, Vocabulary
from tp_transformer.pretrained import settings

ARRAYS = {
    "weight": np.arange(12, dtype=np.float32).reshape(3, 4) / 7,
    "half": np.asarray([1.5, -2.0], np.float16),
    "steps": np.asarray(7, np.int64),
}


class Planted:
    """An object whose unpickling writes a file."""

    def __reduce__(self):
        """Returns the call that a reader must not make."""
        return exec, ("open('/dev/shm/fuzz_was_here', 'w').close()",)


def _planted_zip(folder: Path) -> Sequence[bytes]:
    files = []
    for program in (pickle.dumps(Planted(), 2), b"cos\nsystem\n(S'touch /dev/shm/fuzz_was_here'\ntR."):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("archive/data.pkl", program)
        files.append(file.getvalue())
    return [*files, pickle.dumps(Planted()), pickle.dumps({"model": Planted()}, 4)]


_LEGACY = pickle.dumps(torch_files.LEGACY_MAGIC, 2) + pickle.dumps(torch_files.LEGACY_PROTOCOL, 2)


def _write_legacy(folder: Path) -> None:
    """Writes the format before PyTorch 1.6: pickles of number, version, machine, object, keys; storages."""
    numbers = ARRAYS["weight"].reshape(-1)
    storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK" + bytes(
        [numbers.size]
    )
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"NtQK\0(K\x03K\x04t(K\x04K\x01t\x89"
    saved = (
        b"\x80\x02ccollections\nOrderedDict\n)R(X\x06\0\0\0weight"
        + tensor
        + b"ccollections\nOrderedDict\n)RtRu."
    )
    machine = pickle.dumps({"protocol_version": 1001, "little_endian": True}, 2)
    storages = pickle.dumps(["0"], 2) + struct.pack("<q", numbers.size) + numbers.tobytes()
    (folder / "model.pt").write_bytes(_LEGACY + machine + saved + storages)


def _planted_legacy(folder: Path) -> Sequence[bytes]:
    machine = pickle.dumps({"little_endian": True}, 2)
    return [start + pickle.dumps(Planted(), 2) for start in (b"", _LEGACY, _LEGACY + machine)]


def _write_folnet(folder: Path) -> None:
    model, params = drawn(FOLNet)
    model.save_pretrained(folder, params)


def _read_folnet(folder: Path) -> Any:
    model, params = FOLNet.from_pretrained(folder)
    return model.config.to_dict(), params


def _write_authors(folder: Path) -> None:
    _write_folnet(folder / "ours")
    convert_folnet.to_authors(str(folder / "ours"), str(folder / "theirs"))
    shutil.rmtree(folder / "ours")


def _convert(folder: Path) -> Any:
    convert_folnet.from_authors(str(folder / "theirs"), str(folder / "ours"))
    return _read_folnet(folder / "ours")


def _finetuning(folder: Path) -> Any:
    config = finetune_configs.Config(task="rte", data_dir=str(folder), checkpoint=str(folder))
    if wrong := misfits(config):
        raise ValueError("; ".join(wrong))
    return begin(config, make(config))


def _write_tp_transformer(folder: Path) -> None:
    sizes = {"features": 8, "filter_features": 4, "num_heads": 2, "num_layers": 1}
    model = TPTransformer(vocab_size=DEFAULT.size, **DEFAULT.special_ids, **sizes)
    tokens = jnp.zeros((1, 1), jnp.int32)
    model.save_pretrained(folder, model.init(jax.random.key(0), tokens, tokens)["params"], DEFAULT)


def _read_tp_transformer(folder: Path) -> Any:
    model, params = TPTransformer.from_pretrained(folder)
    return settings(model), params, dataclasses.asdict(Vocabulary.load(folder))


def _write_vocabulary(folder: Path) -> None:
    letters = [chr(code) for code in range(97, 123)]
    WordPieceTokenizer([*SPECIAL_TOKENS, *letters, *(f"##{c}" for c in letters)]).save(folder / "vocab.txt")


# ---- runs


def state(step: int) -> dict[str, Any]:
    """Returns a training state with leaves of all kinds, different for each step."""
    made = {
        "params": {"kernel": np.arange(6, dtype=np.float32).reshape(2, 3) + step, "small": np.float32(2.5)},
        "keys": jax.random.split(jax.random.key(step), 2),
        "board": np.asarray([[-1, 3]], np.int8),
        "half": jnp.asarray([1.5], jnp.bfloat16),
    }
    return jax.tree.map(jnp.asarray, made)


@functools.cache
def abstract() -> dict[str, Any]:
    """Returns the shapes and shardings of `state`."""
    where = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), state(1))


def _write_run(folder: Path) -> None:
    checkpoints = Checkpoints(folder / "checkpoints", every=1, keep=2)
    for step in (1, 2):
        checkpoints.save(step, state(step), {"train_seconds": float(step)})
    checkpoints.close()
    write_json(folder / "config.json", {"steps": 9})
    write_lines(folder / "metrics.jsonl", [{"step": step, "loss": 1 / step} for step in (1, 2)])


def _write_packed(folder: Path) -> None:
    _write_run(folder / "run")
    packing.pack(folder / "run", abstract(), folder / "packed")
    shutil.rmtree(folder / "run")


def _unpack(folder: Path) -> Any:
    packing.unpack(folder / "packed", abstract(), folder / "again")
    return Checkpoints(folder / "again" / "checkpoints", every=1, keep=2).restore(abstract())


def _unpacked_whole(folder: Path) -> None:
    """Raises ValueError if there is a config.json, without which a workdir is not a run."""
    if (folder / "again" / "config.json").exists():
        raise ValueError("again/config.json exists")


def _restore(folder: Path) -> Any:
    checkpoints = Checkpoints(folder / "checkpoints", every=1, keep=2)
    try:
        restored = checkpoints.restore(abstract())
        if restored is None:
            raise ValueError(f"{folder}: no checkpoint found")
        return restored
    finally:
        checkpoints.close()


def _either(valid: Any, found: Any) -> bool:
    """Returns whether `found` is one of the two checkpoints as it was saved."""
    if found.step not in (1, 2):
        return False
    wanted = {"state": state(found.step), "progress": {"train_seconds": float(found.step)}}
    return canonical(wanted) == canonical({"state": found.state, "progress": found.progress})


# ---- exported models


def _weigh(params: Any, inputs: Any) -> Any:
    return {"total": jnp.sum(inputs["ids"] * params["scale"], axis=1) + params["offset"]}


def _write_artifact(folder: Path, where: Where = "inside") -> None:
    model = Exportable(
        kind="sum",
        function=_weigh,
        params={"scale": jnp.full((1, 1), 2.0), "offset": jnp.full((1,), 10.0)},
        inputs={"ids": Input(("batch", "length"), "int32", "numbers", pad=0, range=(0, 99))},
        outputs={"total": Output(("batch",), "of all")},
        source={"step": None},
        lengths=(4,),
    )
    export_model(model, folder / "model.jaxmodel", Options(platforms=("cpu",), weights=where))


def _run_artifact(folder: Path) -> Any:
    model = run_exported.load(folder / "model.jaxmodel")
    return dict(model({"ids": np.asarray([[1, 2, 3, 4], [5, 6, 7, 8]], np.int32)}))


def _write_requests(folder: Path) -> None:
    _write_artifact(folder)
    rows = np.arange(40, dtype=np.int32).reshape(10, 4)
    np.savez(folder / "in.npz", ids=rows)
    asked = [{"id": n, "inputs": {"ids": row.tolist()}} for n, row in enumerate(rows)]
    write_lines(folder / "in.jsonl", asked)


@functools.cache
def _served(artifact: bytes) -> run_exported.Model:
    """Returns the model that answers; it is loaded once, since only the requests are damaged."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.jaxmodel"
        path.write_bytes(artifact)
        return run_exported.load(path)


def _answer(ending: str) -> Callable[[Path], Any]:
    def answer(folder: Path) -> Any:
        model = _served((folder / "model.jaxmodel").read_bytes())
        run_exported.answer_file(model, folder / f"in.{ending}", folder / f"out.{ending}", 4)
        if ending == "npz":
            with np.load(folder / "out.npz") as answers:
                return dict(answers)
        return [json.loads(line) for line in (folder / "out.jsonl").read_text("utf-8").splitlines()]

    return answer


def _planted_requests(folder: Path) -> Sequence[bytes]:
    objects, archive = io.BytesIO(), io.BytesIO()
    np.save(objects, np.asarray([Planted()], object), allow_pickle=True)
    np.savez(archive, ids=np.asarray([Planted()], object))
    return [archive.getvalue(), objects.getvalue(), pickle.dumps(Planted())]


_TORCH = functools.partial(
    Reader,
    code="experiments.runtime.torch_files",
    damaged=["*.pt"],
    read=lambda folder: torch_files.read_state_dict(folder / "model.pt"),
)
_PACKED = functools.partial(
    Reader, code="experiments.runtime.packing", make=_write_packed, checked=True, errors=(CheckpointError,)
)
_EXPORTED = functools.partial(Reader, code="experiments.exporting.run_exported")
READERS: tuple[Reader, ...] = (
    _TORCH(
        "PyTorch, zip",
        make=lambda folder: torch_files.save(folder / "model.pt", ARRAYS),
        planted=_planted_zip,
    ),
    _TORCH("PyTorch, legacy", make=_write_legacy, planted=_planted_legacy),
    Reader(
        "FOLNet's authors, converted",
        "experiments.folnet_pretrain.convert",
        _write_authors,
        ["theirs.*"],
        _convert,
        writes=["ours/*"],
        planted=_planted_zip,
    ),
    Reader(
        "pretrained FOLNet", "folnet.pretrained", _write_folnet, ["*.json", "*.safetensors"], _read_folnet
    ),
    Reader(
        "pretrained TP-Transformer",
        "tp_transformer.pretrained",
        _write_tp_transformer,
        ["*.json", "*.safetensors"],
        _read_tp_transformer,
    ),
    Reader("start of fine-tuning", "experiments.folnet_finetune.model", _write_folnet, ["*.*"], _finetuning),
    Reader(
        "vocabulary",
        "folnet.tokenization",
        _write_vocabulary,
        ["vocab.txt"],
        lambda folder: WordPieceTokenizer.load(folder / "vocab.txt").vocabulary,
    ),
    _PACKED(
        "packed run, its state",
        damaged=["packed/state.safetensors"],
        read=lambda folder: packing.read_state(folder / "packed", abstract()),
    ),
    _PACKED(
        "packed run, continued",
        damaged=["packed/*"],
        read=_unpack,
        writes=["again/**/*"],
        whole=_unpacked_whole,
    ),
    Reader(
        "checkpoints, the newest damaged",
        "experiments.runtime.checkpoints",
        _write_run,
        ["checkpoints/2/**/*"],
        _restore,
        checked=True,
        same=_either,
        errors=(CheckpointError,),
        writes=["checkpoints*/**/*"],
    ),
    _EXPORTED(
        "artifact",
        make=_write_artifact,
        damaged=["*.jaxmodel"],
        read=lambda folder: run_exported.read_artifact(folder / "model.jaxmodel"),
        checked=True,
    ),
    _EXPORTED(
        "artifact with separate weights",
        make=functools.partial(_write_artifact, where="beside"),
        damaged=["*.*"],
        read=_run_artifact,
        checked=True,
    ),
    _EXPORTED(
        "file of arrays to answer",
        make=_write_requests,
        damaged=["in.npz"],
        read=_answer("npz"),
        writes=["out.npz"],
        planted=_planted_requests,
    ),
    _EXPORTED(
        "file of requests to answer",
        make=_write_requests,
        damaged=["in.jsonl"],
        read=_answer("jsonl"),
        writes=["out.jsonl"],
    ),
)
