"""Checkpoints: everything that a run needs to resume exactly, as safetensors, which run no code when loaded.

checkpoints/STEP/policy.safetensors   what acting needs, all seeds
checkpoints/STEP/state.safetensors    all the rest: optimiser, replay buffer, components, keys, environments
checkpoints/STEP/meta.json            counters, and a checksum of each file and of this one
"""

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import PyTree

from self_imitation.config import TrainConfig
from self_imitation.errors import UsageError, first_line
from self_imitation.storage import compression, files
from self_imitation.storage.config_file import VERSION
from self_imitation.storage.trees import by_name, from_arrays, to_arrays
from self_imitation.types import Spec

T = TypeVar("T")

DIRECTORY = "checkpoints"
"""In a run directory."""
POLICY, STATE, META = "policy.safetensors", "state.safetensors", "meta.json"
POLICY_PREFIXES = ("agents.train.params.", "agents.normaliser.")
"""Of the arrays that acting needs."""
COLLECTION = "collection."
"""Prefix of the arrays that say where environments stand; not all environments can be saved."""
PACKED, DTYPES = "packed", "dtypes"
"""Metadata of a file: shapes and dtypes of its compressed arrays."""
STEP = re.compile("0|[1-9][0-9]{0,17}")
"""The name of a checkpoint's folder."""
PACKED_DTYPE = re.compile("bool|u?int(8|16|32|64)|float(16|32|64)")
"""Of compressed arrays of a collection."""
FIELDS = {"version": int, "step": int, "settings": str, "counters": dict, "checksums": dict}
"""Of meta.json, with their types."""
COMPRESSION = 10
"""Lower bound of the compression of frames; measured on games: 18 to 120."""


class DamagedError(Exception):
    """This checkpoint can't be used; the message says which file and why."""


def expected_bytes(config: TrainConfig, spec: Spec) -> int:
    """Approximate size: replay buffers (observation, action, return, tree), at least two rollouts of unfinished
    episodes, and the network with its optimiser.
    """
    observation = spec.observation_bytes
    if spec.stack > 1:
        observation //= spec.stack * COMPRESSION
    step = observation + 4 * math.prod(spec.action_shape) + 10
    steps = sum(min(own.buffer_size, config.steps) + 2 * config.steps_per_iteration for own in config.replay.values())
    return config.seeds * (steps * step + (14_000_000 if spec.observation_kind == "image" else 400_000))


def save(directory: Path, step: int, state: PyTree, counters: dict[str, Any], kept: int, settings: str) -> Path:
    """Write checkpoints/STEP under a temporary name, then rename it; keep this one and `kept` - 1 before it.

    A state that is only a policy has no state.safetensors.
    """
    target = directory / str(step)
    partial = directory / f"{files.PARTIAL}{step}"
    shutil.rmtree(partial, ignore_errors=True)
    directory.mkdir(exist_ok=True)
    partial.mkdir()
    try:
        arrays = to_arrays(state)
        policy = {name: array for name, array in arrays.items() if name.startswith(POLICY_PREFIXES)}
        rest = {name: array for name, array in arrays.items() if name not in policy}
        contents = {POLICY: policy, **({STATE: rest} if rest else {})}
        for name, content in contents.items():
            files.write_through(partial / name, _to_bytes(content))
        checksums = {name: _checksum(partial / name) for name in contents}
        meta = {"version": VERSION, "step": step, "settings": settings, "counters": counters, "checksums": checksums}
        files.write_json(partial / META, {**meta, "checksum": _checksum_of(meta)})
        files.sync_directory(partial)
        if _was_saved(target):
            shutil.rmtree(target)
        os.rename(partial, target)
        files.sync_directory(directory)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    before = [earlier for earlier in steps(directory) if earlier < step and _was_saved(directory / str(earlier))]
    for old in before[: max(0, len(before) + 1 - kept)]:
        delete(directory, old)
    return target


def delete(directory: Path, step: int) -> None:
    """Delete a checkpoint, but not a folder that holds something else."""
    if _was_saved(directory / str(step)):
        partial = directory / f"{files.PARTIAL}{step}"
        os.rename(directory / str(step), partial)  # a crash leaves no half of it that looks like a checkpoint
        shutil.rmtree(partial)


def _was_saved(path: Path) -> bool:
    """Whether `save` made this folder, even if it was damaged since: it has two of the three files at least."""
    return _is_folder(path) and sum((path / name).is_file() for name in (POLICY, STATE, META)) >= 2


def kept(directory: Path) -> str:
    """What is left after a failure, in words."""
    saved = steps(directory)
    return f"the checkpoint at step {saved[-1]} is kept" if saved else "there was no checkpoint yet"


def steps(directory: Path) -> list[int]:
    """The steps at which there are checkpoints, oldest first. Folders with other names are ignored."""
    if not directory.is_dir():
        return []
    return sorted(int(path.name) for path in directory.iterdir() if STEP.fullmatch(path.name) and _is_folder(path))


def _is_folder(path: Path) -> bool:
    """Symbolic links are not followed: what they point to belongs to others."""
    return path.is_dir() and not path.is_symlink()


def load_latest(
    directory: Path, settings: str, load: Callable[[Path, dict[str, Any]], T], warn: Callable[[str], None]
) -> T | None:
    """Apply `load` to the latest intact checkpoint; None if there are no checkpoints.

    Damaged checkpoints are reported and skipped; one of a run with other `settings` is refused. A checkpoint that
    vanishes while being read was deleted by a process that trains the run: then look again.
    """
    tried: set[int] = set()
    damaged = False
    while left := [step for step in steps(directory) if step not in tried]:
        path = directory / str(left[-1])
        tried.add(left[-1])
        try:
            return load(path, _read_meta(path, settings))
        except DamagedError as error:
            if not path.exists():
                continue
            damaged = True
            then = "; trying the one before" if len(left) > 1 else ""
            warn(f"checkpoint {path} is damaged ({error}){then}")
    if damaged:
        raise UsageError(f"run: {str(directory.parent)!r} has no intact checkpoint")
    return None


def load_state(path: Path, meta: dict[str, Any], like: PyTree) -> tuple[PyTree, dict[str, np.ndarray]]:
    """The state in the structure of `like`, and the arrays that say where environments stand, by name."""
    expected = by_name(like)
    arrays = {**_read(path, POLICY, meta, expected), **_read(path, STATE, meta, expected)}
    collection = {name: array for name, array in arrays.items() if name.startswith(COLLECTION)}
    seeds = next(iter(expected.values())).shape[0]
    for name, array in collection.items():
        if array.shape[:1] != (seeds,):
            raise DamagedError(f"{STATE}: {name} has shape {list(array.shape)}, not that of {seeds} seeds")
    state = from_arrays({name: array for name, array in arrays.items() if name not in collection}, like, str(path))
    return state, {name.removeprefix(COLLECTION): array for name, array in collection.items()}


def load_policy(path: Path, meta: dict[str, Any], like: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
    """Parameters and normaliser of all seeds; the replay buffer is not read."""
    parts = list(zip(POLICY_PREFIXES, like, strict=True))
    expected = {prefix + name: leaf for prefix, part in parts for name, leaf in by_name(part).items()}
    arrays, found = _read(path, POLICY, meta, expected), []
    for prefix, part in parts:
        own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        found.append(from_arrays(own, part, str(path)))
    return found[0], found[1]


def _read(path: Path, name: str, meta: dict[str, Any], expected: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """`expected`: leaves of shapes and dtypes by name; others than those of a collection are not unpacked."""
    file = path / name
    try:
        if _checksum(file) != meta["checksums"].get(name):
            raise DamagedError(f"{name}: checksum differs")
        return _from_file(file, expected)
    except OSError as error:
        raise DamagedError(f"{name}: {error.strerror}") from None
    except (safetensors.SafetensorError, ValueError, RecursionError, MemoryError) as error:
        raise DamagedError(f"{name}: {first_line(error)}") from None


def _to_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    packed = {name: array for name, array in arrays.items() if compression.worthwhile(array)}
    content = {name: compression.pack(array) if name in packed else array for name, array in arrays.items()}
    shapes = {name: array.shape for name, array in packed.items()}
    dtypes = {name: array.dtype.name for name, array in packed.items()}
    return safetensors.numpy.save(content, {PACKED: json.dumps(shapes), DTYPES: json.dumps(dtypes)})


def _from_file(file: Path, expected: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Raises `ValueError` or `SafetensorError` if the file is not one that `_to_bytes` makes."""
    with safetensors.safe_open(file, "numpy") as opened:
        metadata = opened.metadata() or {}
        try:
            arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (it is no dictionary)
        except (TypeError, AttributeError) as error:
            raise ValueError(f"a dtype that NumPy does not have: {error}") from None
    shapes, dtypes = (json.loads(metadata.get(key, "{}")) for key in (PACKED, DTYPES))
    if not isinstance(shapes, dict) or not isinstance(dtypes, dict) or not shapes.keys() <= arrays.keys():
        raise ValueError("not the metadata of packed arrays")
    for name, shape in shapes.items():
        dtype = dtypes.get(name, "uint8")  # without dtypes: saved when only frames were compressed
        arrays[name] = compression.unpack(arrays[name], *_packed_as(name, shape, dtype, expected))
    return arrays


def _packed_as(name: str, shape: Any, dtype: Any, expected: Mapping[str, Any]) -> tuple[tuple[int, ...], np.dtype]:
    """The shape and dtype that a packed array claims to have, checked before it is unpacked."""
    sizes = isinstance(shape, list) and len(shape) >= 3 and all(type(size) is int and size >= 0 for size in shape)
    known = expected.get(name)
    if known is not None and sizes and (tuple(shape), dtype) == (known.shape, known.dtype.name):
        return known.shape, np.dtype(known.dtype)
    if known is None and sizes and name.startswith(COLLECTION) and PACKED_DTYPE.fullmatch(str(dtype)):
        return tuple(shape), np.dtype(dtype)
    raise ValueError(f"{name} is packed as {dtype!r:.60}{shape!r:.60}, which does not belong to this run")


def _read_meta(path: Path, settings: str) -> dict[str, Any]:
    try:
        meta = files.read_json(path / META)
    except files.UnreadableError as error:
        raise DamagedError(f"{META}: {error}") from None
    checksum = meta.pop("checksum", None) if isinstance(meta, dict) else None
    if not checksum:
        raise DamagedError(f"{META}: not the metadata of a checkpoint")
    if checksum != _checksum_of(meta):
        raise DamagedError(f"{META}: checksum differs")
    for name, kind in FIELDS.items():
        if type(meta.get(name)) is not kind:
            raise DamagedError(f"{META}: {name} is missing or of the wrong type")
    if meta["version"] != VERSION:
        raise UsageError(f"checkpoint: {str(path)!r} has version {meta['version']}; this release reads {VERSION}")
    if meta["step"] != int(path.name):
        raise DamagedError(f"{META}: it belongs to step {meta['step']}")
    if meta["settings"] != settings:
        raise UsageError(f"checkpoint: {str(path)!r} belongs to another run; its settings differ from config.json")
    return meta


def _checksum(path: Path) -> str:
    with files.open_regular(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksum_of(meta: dict[str, Any]) -> str:
    try:
        text = json.dumps(meta, sort_keys=True)
    except RecursionError:
        raise DamagedError(f"{META}: nested too deeply") from None
    return hashlib.sha256(text.encode()).hexdigest()
