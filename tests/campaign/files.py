"""Damaged and forged files in a run's directory, read by every command that reads runs."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

from campaign import commands, mutations
from campaign.context import Context
from campaign.outcomes import Case, Change, Tally
from campaign.sandbox import read_document
from campaign.worker import perform_all

FULL = 10_000
"""Cases of the full campaign."""
READERS = {
    ("metrics", "{run}"): 40,
    ("policy", "{run}"): 35,
    ("plot", "{run}", "--out", "{output}/curves.png"): 10,
    ("evaluate", "{run}", "--episodes", "1"): 7,
    ("resume", "{run}"): 4,
    ("resume", "{run}", "--steps", "264"): 1,
    ("play", "{run}", "--out", "{output}/play.gif"): 1,
    ("evaluate", "{run}", "--episodes", "1", "--greedy", "--json", "{output}/results.json"): 2,
}
"""Commands with their shares in percent."""
STRUCTURES = 50
"""One case in this many changes the structure of the directory."""
STEPPING = ("evaluate", "resume", "play")
"""Commands that step environments, and so may differ between backends."""
LATEST = f"checkpoints/{commands.STEPS[-1]}"
FOLDERS = (
    "009000",
    "²",
    "٣٠٠",
    "99999999999999999999",
    "9" * 200,
    "-1",
    "1e9",
    "256.0",
    "+300",
    "３００",
    "0",
    "00",
    " 9 ",
)
LINKED = ("config.json", "metrics.csv", "summary.json", "curve.png", ".lock", "checkpoints", "tensorboard", LATEST)
TARGETS = ("../outside/notes.txt", "../outside/photos", "../outside", "/dev/zero", "/dev/full", "config.json", "/", ".")


def run(context: Context) -> Tally:
    tally = Tally()
    cases = generate(context.random("files"), context.bases, context.count(FULL))
    for case, outcome in perform_all(
        cases, context.folder / "files", context.bases, commands.sil, context.over, context.jobs
    ):
        context.report(case, tally.add(case, outcome))
    return tally


def generate(random_: random.Random, bases: Path, count: int) -> Iterator[Case]:
    structures, trained = _structures(), sorted(path.name for path in bases.iterdir())
    random_.shuffle(structures)
    for number in range(count):
        base = random_.choice(trained)
        make = random_.choices((_table, _config, _meta, _weights, _summary), (25, 30, 20, 20, 3))[0]
        changes, about, readers = make(random_, bases / base)
        if number % STRUCTURES == 0:
            changes = structures[number // STRUCTURES % len(structures)]
            about, readers = f"{changes[0].do} {changes[0].file}", _only(*STEPPING)
        reader = random_.choices(list(readers), list(readers.values()))[0]
        yield Case("files", reader, base if reader[0] in STEPPING else "grid", tuple(changes), about)


Made = tuple[list[Change], str, dict[tuple[str, ...], int]]


def _only(*names: str) -> dict[tuple[str, ...], int]:
    return {command: share for command, share in READERS.items() if command[0] in names}


def _table(random_: random.Random, base: Path) -> Made:
    """metrics.csv: damaged anywhere, or with a hostile cell."""
    content = (base / "metrics.csv").read_bytes()
    if random_.random() < 0.5:
        lines = content.decode().splitlines()
        row = random_.randrange(len(lines))
        cells = lines[row].split(",")
        values = (*mutations.NUMBERS, *mutations.STRINGS, "", "", "inf", "nan", "1e999")
        cells[random_.randrange(len(cells))] = random_.choice(values)
        lines[row] = ",".join(cells)
        content = ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")
    else:
        content = mutations.damaged(content, random_)
    readers = {**_only("metrics", "plot", "resume", "play"), ("policy", "{run}"): 3}
    return [Change("write", "metrics.csv", content=content)], "metrics.csv", readers


def _config(random_: random.Random, base: Path) -> Made:
    change = _document("config.json", base, random_)
    if random_.random() < 0.2:
        name = random_.choice((("env",), ("env",), ("agent",), ("preset",), ("engine",), ("network", "kind"), ("out",)))
        change = Change("set", "config.json", name, json.dumps(random_.choice(mutations.STRINGS)))
    return [change], f"config.json {'.'.join(map(str, change.at))}", READERS


def _meta(random_: random.Random, base: Path) -> Made:
    """With recomputed checksums in most cases, for what is checked behind them."""
    changes = [_document(f"{LATEST}/meta.json", base, random_)]
    if random_.random() < 0.7:
        changes.append(Change("seal", LATEST))
    return changes, "meta.json", _only("policy", "evaluate", "resume", "play")


def _weights(random_: random.Random, base: Path) -> Made:
    """policy.safetensors, in its header or anywhere, and state.safetensors, which only resuming reads."""
    name = random_.choices(("policy", "state"), (4, 1))[0]
    change = _document(f"{LATEST}/{name}.safetensors", base, random_)
    if random_.random() < 0.25:
        change = _packed(f"{LATEST}/{name}.safetensors", base, random_)
    changes = [change]
    if random_.random() < 0.8:
        changes.append(Change("seal", LATEST))
    return changes, change.file, _only("policy", "evaluate") if name == "policy" else _only("resume")


def _packed(file: str, base: Path, random_: random.Random) -> Change:
    """Claims about compressed arrays in the metadata."""
    arrays = [name for name in read_document(base / file) if name != "__metadata__"]
    name = random_.choice((*arrays, "no such array"))
    shape = [random_.choice((0, 1, 2, 1000, 4096, 10**9, -1)) for _ in range(random_.randrange(5))]
    dtype = random_.choice(("uint8", "float32", "object", "O", "", "x", "U100", "V8", "float128", "datetime64[s]"))
    value, key = random_.choice((({name: shape}, "packed"), ({name: dtype}, "dtypes"), ([1], "packed")))
    text = random_.choice((json.dumps(value), mutations.json_value(random_)))
    return Change("set", file, ("__metadata__", key), json.dumps(text))


def _summary(random_: random.Random, base: Path) -> Made:
    experiment = ("reproduce", "grid-worlds", "--report-only", "--runs", "{run}", "--out", "{output}")
    return [_document("summary.json", base, random_)], "summary.json", {**_only("resume", "plot"), experiment: 2}


def _structures() -> list[tuple[Change, ...]]:
    """Odd folders among the checkpoints, links instead of files, files that are missing, modules that must not run."""
    photos = "../outside/photos"
    evil = [(Change("set", "config.json", ("env",), json.dumps(name)),) for name in mutations.STRINGS if "evil" in name]
    return [
        *((Change("folder", f"checkpoints/{name}", text=LATEST),) for name in FOLDERS),
        *((Change("link", name, text=target),) for name in LINKED for target in TARGETS),
        *((Change("delete", name),) for name in (*LINKED, f"{LATEST}/meta.json", f"{LATEST}/policy.safetensors")),
        (Change("folder", f"{photos}/{LATEST[-3:]}", text=LATEST), Change("link", "checkpoints", text=photos)),
        *evil,
        *((*change, Change("set", "config.json", ("engine",), '"gymnasium"')) for change in evil),
    ]


def _document(file: str, base: Path, random_: random.Random) -> Change:
    """A change to a file with JSON: at one place in the document, or in its bytes."""
    kind = random_.random()
    if kind < 0.3:
        return Change("write", file, content=mutations.damaged((base / file).read_bytes(), random_))
    at = random_.choice(mutations.places(read_document(base / file)))
    if kind < 0.4 and at:
        return Change("drop", file, at)
    if kind < 0.5:
        at = (*at[:-1], random_.choice(mutations.STRINGS))  # a key that is not there
    return Change("set", file, at, mutations.json_value(random_))
