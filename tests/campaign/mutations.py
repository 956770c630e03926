"""Hostile values and random damage."""

import json
import random
import shlex
from typing import Any

STRINGS = (
    "",
    " ",
    "\0",
    "a\0b",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x9b2J",
    "\r\n",
    "two\nlines",
    "\u202eback",
    "\ud800",
    "é" * 200,
    "🙂",
    "n" * 300,
    "n" * 70_000,
    "$x^2$",
    "$",
    "%s%n",
    "{0}",
    "-",
    "--",
    "--help",
    "~",
    ".",
    "..",
    "/",
    "../outside",
    "/dev/full",
    "/dev/null",
    "/proc/self/mem",
    "/proc/nonexistent/file",
    "None",
    "nan",
    "true",
    "0x10",
    "1_000",
    "١٢٣",
    "²",
    "a2c+sil+",
    "+",
    "gym:",
    "gym::",
    "gym:a:b:c",
    "gym:evil:Foo-v0",
    "gym:evilrun.evil:Foo-v0",
    "gym:evilrun:Foo-v0",
    "gym:os:system",
    "gym:CartPole-v1",
    "gym:CartPole-v999",
    "atari:Pong",
    "atari:",
    "mujoco:Hopper",
)
NUMBERS = (
    *shlex.split(
        "0 -0 -1 1 2 3 7 0.5 -0.5 1e-9 1e-320 1e308 1e309 -1e309 1e400 nan NaN inf Infinity -inf -Infinity 255 256 257 "
        "65535 65537 2147483647 2147483648 4294967295 4294967296 9223372036854775807 9223372036854775808 "
        "18446744073709551616 1e15 1.0 1. .5 1e 0x1 1,5 ½"
    ),
    *("9" * 30, "9" * 400, "9" * 5000, "0" * 400, "1" + "0" * 308 + ".5", "-" + "9" * 400),
)


def json_value(random_: random.Random) -> str:
    """Some JSON, not all of it valid."""
    return random_.choice(
        (
            lambda: json.dumps(random_.choice(STRINGS)),
            lambda: json.dumps(random_.choice(STRINGS)),
            lambda: random_.choice(NUMBERS),
            lambda: random_.choice(NUMBERS),
            lambda: random_.choice(
                ("null", "true", "false", "[]", "{}", "[null]", "[[]]", '{"a": 1}', "[1, 2]", '[""]')
            ),
            lambda: "[" + ", ".join(random_.choice(NUMBERS[:12]) for _ in range(random_.randrange(5))) + "]",
            lambda: nested(random_),
            lambda: json.dumps("x" * random_.choice((100, 255, 256, 5000))),
        )
    )()


def nested(random_: random.Random) -> str:
    depth = random_.choice((5, 100, 900, 3000, 100_000))
    start, end = random_.choice((("[", "]"), ('{"a":', "}")))
    return start * depth + "1" + end * random_.choice((depth, depth, 0))


def places(document: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The path of every value in a JSON document."""
    found = [path]
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        found += places(value, (*path, key))
    return found


def damaged(content: bytes, random_: random.Random) -> bytes:
    """The bytes with one or a few random changes."""
    for _ in range(random_.choice((1, 1, 1, 2, 5))):
        content = random_.choice(
            (_flip, _flip, _cut, _remove, _duplicate, _insert, _insert, _overwrite, _number, _number, _zeros)
        )(content, random_)
    return content


def _at(content: bytes, random_: random.Random) -> int:
    return random_.randrange(len(content) + 1)


def _flip(content: bytes, random_: random.Random) -> bytes:
    if not content:
        return content
    changed = bytearray(content)
    changed[random_.randrange(len(changed))] ^= 1 << random_.randrange(8)
    return bytes(changed)


def _cut(content: bytes, random_: random.Random) -> bytes:
    return content[: _at(content, random_)]


def _remove(content: bytes, random_: random.Random) -> bytes:
    start = _at(content, random_)
    return content[:start] + content[start + random_.choice((1, 2, 10, 100)) :]


def _duplicate(content: bytes, random_: random.Random) -> bytes:
    start, where = _at(content, random_), _at(content, random_)
    piece = content[start : start + random_.choice((1, 10, 100, 1000))] * random_.choice((1, 1, 2, 50))
    return content[:where] + piece + content[where:]


def _insert(content: bytes, random_: random.Random) -> bytes:
    start = _at(content, random_)
    text = random_.choice((*STRINGS, *NUMBERS, ",", ",,,", '"', "{", "}", "\n", "\ufeff"))
    return content[:start] + text.encode("utf-8", "surrogatepass") + content[start:]


def _overwrite(content: bytes, random_: random.Random) -> bytes:
    start = _at(content, random_)
    piece = random_.randbytes(random_.choice((1, 4, 8, 64)))
    return content[:start] + piece + content[start + len(piece) :]


def _number(content: bytes, random_: random.Random) -> bytes:
    """Replace one of the numbers in a text."""
    digits = [i for i, byte in enumerate(content) if 48 <= byte <= 57]
    if not digits:
        return content
    start = end = random_.choice(digits)
    while end < len(content) and content[end : end + 1] in b"0123456789.e-" and content[end : end + 1]:
        end += 1
    return content[:start] + random_.choice((*NUMBERS, "", "x", "-")).encode() + content[end:]


def _zeros(content: bytes, random_: random.Random) -> bytes:
    """As a crash leaves a file whose blocks were never written."""
    start = _at(content, random_)
    return content[:start] + bytes(len(content) - start)
