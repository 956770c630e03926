"""The scripts in examples/ run, here with few steps."""

import runpy
import sys
from pathlib import Path

import matplotlib.image
import pytest

from self_imitation.networks import actor_critic

EXAMPLES = Path(__file__).parents[1] / "examples"
OUTPUTS = {
    "quickstart": "return of this episode: ",
    "custom_environment": "runs/python-",
    "early_stopping": "continue with: sil resume ",
    "sweep": "8 updates: ",
    "custom_network": "of 500",
}
"""What each one prints, among other things."""
LONG = {"sweep": pytest.mark.extras, "custom_network": pytest.mark.extras}
"""Those that take too long for the usual tests."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG.get(name, ())) for name in OUTPUTS])
def test_the_script_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, "--steps", "2000"])
    monkeypatch.setattr(actor_critic, "_factories", dict(actor_critic._factories))
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert OUTPUTS[name] in capsys.readouterr().out
    assert list((tmp_path / "runs").iterdir())
    if name == "sweep":
        assert matplotlib.image.imread(tmp_path / "sweep.png").ndim == 3


def test_the_list_names_every_example():
    page = (EXAMPLES / "README.md").read_text()
    files = [path for path in EXAMPLES.rglob("*.*") if path.suffix in (".py", ".ipynb", ".yaml")]
    assert len(files) > len(OUTPUTS)
    assert all(f"({path.relative_to(EXAMPLES).as_posix()})" in page for path in files)


@pytest.mark.parametrize("name", OUTPUTS)
def test_the_script_is_short(name):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 40
