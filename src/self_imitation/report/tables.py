"""Tables of results, as text for people, as CSV with plain numbers and as LaTeX."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

MISSING = "–"
_LATEX = {
    **{symbol: f"\\{symbol}" for symbol in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "−": "$-$",
    "–": "--",
    "·": r"$\cdot$",
}


class Estimate(NamedTuple):
    """A mean with its 95 % interval, which is NaN for a single value."""

    mean: float
    low: float
    high: float
    digits: int = 2
    signed: bool = False

    def __str__(self) -> str:
        mean, low, high = (number(value, self.digits, self.signed) for value in self[:3])
        return mean if math.isnan(self.low) else f"{mean} ({low} to {high})"


class Number(NamedTuple):
    value: float
    digits: int = 0

    def __str__(self) -> str:
        return number(self.value, self.digits)


Cell = str | int | Number | Estimate | None
"""None: not known."""


@dataclass(frozen=True)
class Table:
    name: str
    """Of its files, without suffix."""
    caption: str
    columns: Mapping[str, str]
    """Headings by the name of the column in CSV files."""
    rows: Sequence[Mapping[str, Cell]]

    @property
    def numeric(self) -> set[str]:
        """Columns whose cells are aligned to the right."""
        return {
            name
            for name in self.columns
            if any(not isinstance(row[name], str | None) for row in self.rows)
            and not any(isinstance(row[name], str) for row in self.rows)
        }


def number(value: float, digits: int, signed: bool = False) -> str:
    """With thousands separated and a true minus sign."""
    if math.isnan(value):
        return MISSING
    return f"{value:{'+' if signed else ''}z,.{digits}f}".replace("-", "−")


def text(cell: Cell) -> str:
    if cell is None:
        return MISSING
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def to_csv(table: Table) -> str:
    """With the ends of intervals in columns of their own, NAME_low and NAME_high."""
    estimates = {name for name in table.columns if any(isinstance(row[name], Estimate) for row in table.rows)}
    names = [part for name in table.columns for part in _parts(name, name in estimates)]
    file = io.StringIO()
    writer = csv.DictWriter(file, names, lineterminator="\n", restval="")
    writer.writeheader()
    for row in table.rows:
        plain: dict[str, object] = {}
        for name in table.columns:
            cell = row[name]
            if isinstance(cell, Estimate):
                values = (f"{value:.6g}" if math.isfinite(value) else "" for value in cell[:3])
                plain |= zip(_parts(name, True), values, strict=True)
            else:
                plain[name] = f"{cell.value:.6g}" if isinstance(cell, Number) else cell
        writer.writerow(plain)
    return file.getvalue()


def _parts(name: str, estimate: bool) -> tuple[str, ...]:
    return (name, f"{name}_low", f"{name}_high") if estimate else (name,)


def to_latex(table: Table) -> str:
    """A table for a document that uses the package booktabs."""
    aligned = "".join("r" if name in table.numeric else "l" for name in table.columns)
    lines = [[_latex(heading) for heading in table.columns.values()]]
    lines += [[_latex(text(row[name])) for name in table.columns] for row in table.rows]
    heading, *rows = (" & ".join(line) + r" \\" for line in lines)
    parts = [r"\toprule", heading, r"\midrule", *rows, r"\bottomrule"]
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            f"  \\caption{{{_latex(table.caption)}}}",
            f"  \\begin{{tabular}}{{{aligned}}}",
            *(f"    {part}" for part in parts),
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _latex(plain: str) -> str:
    return "".join(_LATEX.get(symbol, symbol) for symbol in plain)
