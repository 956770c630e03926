"""The notebooks in examples/ run from top to bottom, here with few steps."""

import os
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.extras
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
import nbformat

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
FEWER = {"STEPS": 20_000, "ITERATIONS": 20}
"""Of the constants that say how long a notebook trains."""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # other tests draw without a screen
    notebook = nbformat.read(path, as_version=4)
    changed = sum(_train_less(cell) for cell in notebook.cells)
    assert changed == 1
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)


def _train_less(cell: nbformat.NotebookNode) -> int:
    """How many constants were made smaller."""
    if cell.cell_type != "code":
        return 0
    pattern = rf"^({'|'.join(FEWER)}) = [\d_]+"
    cell.source, count = re.subn(pattern, lambda found: f"{found[1]} = {FEWER[found[1]]}", cell.source, flags=re.M)
    return count


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_is_stored_without_outputs(path):
    cells = nbformat.read(path, as_version=4).cells
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_of_the_notebook_lead_somewhere(path):
    text = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")
    targets = re.findall(r"\]\(([^)#]+)", text)
    assert targets
    assert all((path.parent / target).exists() for target in targets)
