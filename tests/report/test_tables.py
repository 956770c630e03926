import csv
import io

import pytest

from self_imitation.report import tables
from self_imitation.report.tables import Estimate, Number, Table

TABLE = Table(
    "scores",
    "Scores & more",
    {"task": "task", "final": "final (95 %)", "paper": "paper", "seeds": "n"},
    [
        {"task": "A_1 & <b>", "final": Estimate(-1.234, -2, 0.5), "paper": Number(2500.0), "seeds": 3},
        {"task": "B", "final": Estimate(7.0, float("nan"), float("nan")), "paper": None, "seeds": None},
    ],
)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, "–"),
        (1234567, "1,234,567"),
        (Number(0.5, 2), "0.50"),
        (Number(float("nan")), "–"),
        (Estimate(-1234.5, -2000, 0.4, 0), "−1,234 (−2,000 to 0)"),
        (Estimate(1.0, 0.5, 1.5, 1, signed=True), "+1.0 (+0.5 to +1.5)"),
        (Estimate(3.0, float("nan"), float("nan")), "3.00"),
    ],
)
def test_cells_as_text(cell, text):
    assert tables.text(cell) == text


def test_csv_has_plain_numbers_and_the_ends_of_intervals():
    first, second = csv.DictReader(io.StringIO(tables.to_csv(TABLE)))
    assert first == {
        "task": "A_1 & <b>",
        "final": "-1.234",
        "final_low": "-2",
        "final_high": "0.5",
        "paper": "2500",
        "seeds": "3",
    }
    assert second == {"task": "B", "final": "7", "final_low": "", "final_high": "", "paper": "", "seeds": ""}


def test_latex_is_a_table_with_escaped_text_and_numbers_to_the_right():
    assert tables.to_latex(TABLE).splitlines() == [
        r"\begin{table}",
        r"  \centering",
        r"  \caption{Scores \& more}",
        r"  \begin{tabular}{lrrr}",
        r"    \toprule",
        r"    task & final (95 \%) & paper & n \\",
        r"    \midrule",
        r"    A\_1 \& \textless{}b\textgreater{} & $-$1.23 ($-$2.00 to 0.50) & 2,500 & 3 \\",
        r"    B & 7.00 & -- & -- \\",
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
