"""The examples of docs/stable-baselines3.md run, with fewer steps, and train."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("stable_baselines3")

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.extras, pytest.mark.filterwarnings("ignore:self-imitation. nothing to imitate")]


def test_the_examples_of_the_page_run(tmp_path, monkeypatch):
    page = (ROOT / "docs/stable-baselines3.md").read_text()
    start, settings, saving = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    exec(start.replace("1_000_000", "800").replace("=SelfImitation()", "=(callback := SelfImitation())"), space)
    first = space["callback"]
    exec(settings, space)
    space["callback"] = first
    exec(saving.replace("100_000", "800"), space)
    assert space["callback"] is not first
    assert space["model"].num_timesteps == 1600


def test_the_example_script_trains_both_agents(tmp_path, monkeypatch, capsys):
    path = ROOT / "examples/sb3_key_door_treasure.py"
    spec = importlib.util.spec_from_file_location("sb3_key_door_treasure", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["script", "--steps", "1600", "--seeds", "2", "--out", str(tmp_path)])
    module.main()
    assert "final return, difference: " in capsys.readouterr().out
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 5
