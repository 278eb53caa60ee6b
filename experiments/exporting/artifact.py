"""A model as one file: programs serialized by `jax.export`, weights, and a manifest that describes them.

The file is an uncompressed zip archive of `manifest.json`, one program per length, the weights as
safetensors, and `experiments/exporting/run_exported.py` as `__main__.py`, so that Python can run the archive
directly. It need not be unpacked, any zip program lists its members, and the manifest has the SHA-256 of each
member.
"""

import datetime
import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import jax
import safetensors.numpy

import logic_zoo
from experiments.exporting import manifest as manifests
from experiments.exporting import programs, run_exported
from experiments.exporting.interface import Exportable
from experiments.exporting.options import BESIDE, CONSTANTS, INSIDE, Options
from experiments.exporting.run_exported import MANIFEST, WEIGHTS
from logic_zoo.writing import whole

SUFFIX = ".jaxmodel"
MAIN = "__main__.py"


def export_model(
    model: Exportable, target: Path, options: Options | None = None, *, today: datetime.date | None = None
) -> dict[str, Any]:
    """Writes an artifact atomically, and returns its manifest, dated `today`.

    With `weights="beside"`, the weights are written next to the artifact as `*.safetensors`.

    Raises:
        ValueError: if the model does not support the options.
    """
    options = options or Options()
    with logic_zoo.extra("experiments"):
        import flatbuffers  # noqa: F401 -- `jax.export` serialises with it
    made = programs.export_programs(model, options)
    weights = {} if options.weights == CONSTANTS else programs.named_weights(model)
    packed = safetensors.numpy.save(weights, {"format": "flax"})
    members = {MAIN: Path(run_exported.__file__).read_bytes()}
    for length, exported in made.items():
        members[manifests.member_of(length)] = bytes(exported.serialize(vjp_order=int(options.derivative)))
    if options.weights == INSIDE:
        members[WEIGHTS] = packed
    separate = target.with_suffix(".safetensors") if options.weights == BESIDE else None
    manifest = {
        **manifests.describe(model, options, made, today or datetime.datetime.now(datetime.UTC).date()),
        "weights": {
            "where": options.weights,
            "file": separate and separate.name,
            "sha256": hashlib.sha256(packed).hexdigest(),
            "numbers": sum(leaf.size for leaf in jax.tree.leaves(model.params)),
            "split": programs.splits_of(weights, options),
        },
        "members": {
            name: {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
            for name, content in members.items()
        },
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    if separate is not None:
        with whole(separate) as temporary:  # first, so that an artifact is never without its weights
            temporary.write_bytes(packed)
    described = json.dumps(manifest, indent=1, allow_nan=False).encode()
    with whole(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        for name, content in {MANIFEST: described, **members}.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return manifest
