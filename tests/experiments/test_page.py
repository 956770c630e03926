"""The results page of an experiment."""

import dataclasses
import shutil

from experiments.small import SMALL, small, write_runs

from self_imitation.errors import UsageError
from self_imitation.experiments import collect, page, provenance
from self_imitation.report import aggregate

LONG = SMALL.replace("steps = 160", "steps = 4096").replace("return_mean", "return_latest")


def collected(tmp_path, text=LONG, **options):
    definition = small(text)
    return collect.collect(definition, write_runs(definition, tmp_path, **options), definition)


def test_a_page_has_intervals_and_their_number_of_seeds(tmp_path):
    found = page.text(collected(tmp_path))
    assert found.startswith("# A small experiment\n\nWhat it is.\n\n![Learning curves](figure.png)\n\n")
    assert "| Maze | a2c+exp | 100.50 (94.15 to 106.85) | 2 | 2 of 2 (34 to 100 %) |" in found, "Student's, n = 2"
    assert "each seed's mean return over its last 100 episodes. Intervals of shares are Wilson's. Where some" in found
    assert "| Maze | a2c+exp minus a2c | +100.00 (+96.96 to +103.04) | 2 and 2 | higher |" in found
    assert "seeds 0 to 1, on a machine. Training took 8 s in total." in found
    assert "Not complete" not in found


def test_what_is_missing_or_shortened_is_named(tmp_path):
    write_runs(small(LONG.replace("4096", "8192")), tmp_path)
    shutil.rmtree(tmp_path / "Maze_a2c")
    definition = small(LONG.replace("4096", "8192"))
    found = page.text(collect.collect(definition, tmp_path, definition))
    assert "**Not complete: 1 of 2 runs is shorter than planned, 1 of 2 runs is not run (column *status*).**" in found
    assert "| Maze | a2c | – | – | – | – | – | not run |" in found
    assert "| shortened: 4.1k of 8.19k steps |" in found


def test_files_are_written_beside_the_data(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    page.write(collected(tmp_path / "runs"), out)
    names = {"README.md", "figure.png", "figure.svg", "table.csv", "contrasts.csv"}
    assert {path.name for path in out.iterdir()} == names
    assert (out / "table.csv").read_text().startswith("task,agent,final,final_low,final_high,seeds,")
    picture = (out / "figure.svg").read_text()
    page.write(collected(tmp_path / "other"), out)
    assert (out / "figure.svg").read_text() == picture, "no date, no random names"
    page.write(collected(tmp_path / "third", LONG.replace('compare = [["a2c+exp", "a2c"]]', "")), out)
    assert not (out / "contrasts.csv").exists(), "nothing is compared any more"


def test_aggregates_need_three_tasks_and_their_package(tmp_path, monkeypatch):
    monkeypatch.setattr(aggregate, "RESAMPLES", 50)
    tasks = "".join(f'\n[[task]]\nname = "{name}"\nenv = "key-door-treasure"\nnormalise = [0, 100]\n' for name in "ABC")
    text = LONG[: LONG.index("[[task]]")] + tasks + LONG[LONG.index("[[agent]]") :]
    found = collected(tmp_path / "runs", text)
    assert "3 of 3 tasks have scores of all agents that were run." in page.text(found)
    monkeypatch.setattr(page, "FEWEST_TASKS", 4)
    assert "## Over tasks" not in page.text(found)
    monkeypatch.setattr(page, "FEWEST_TASKS", 3)

    def missing():
        raise UsageError("statistics over tasks need rliable: pip install it")

    monkeypatch.setattr(aggregate, "_rliable", missing)
    assert "Not computed: statistics over tasks need rliable: pip install it." in page.text(found)


def test_the_figure_of_best_episodes_has_both_curves(tmp_path):
    found = collected(tmp_path, LONG.replace("seeds = 2", "seeds = 2\nbest_every = 4096"))
    labels = [curve.label for curve in page.drawn_curves(found)]
    assert labels == ["a2c", "a2c, best episode of 4.096k", "a2c+exp", "a2c+exp, best episode of 4.096k"]


def test_chosen_settings_are_on_the_page(tmp_path):
    choice = {
        "task": "Maze",
        "agent": "a2c",
        "seeds": [1000, 1001],
        "steps": 400,
        "candidates": [{"settings": {"a2c.gamma": gamma}, "scores": [1, 2]} for gamma in (0.5, 0.9)],
        "chosen": {"a2c.gamma": 0.9},
    }
    found = page.text(dataclasses.replace(collected(tmp_path), choices=[choice]))
    assert "The highest mean on seeds 1000 to 1001, which are not reported" in found
    assert "| Maze | a2c | a2c.gamma 0.9 | 2 | 400 |" in found


def test_a_bar_in_a_name_does_not_break_a_table(tmp_path):
    found = page.text(collected(tmp_path, LONG.replace('name = "Maze"', 'name = "A|B"')))
    assert "| A\\|B | a2c |" in found


def test_settings_of_an_experiment_are_part_of_its_provenance(tmp_path):
    assert 'Preset `authors` with {"log_every": 80, "network.hidden": [8]}, seeds 0 to 1' in page.text(
        collected(tmp_path)
    )


def test_every_command_that_trained_a_run_is_named_once(tmp_path):
    assert "The commands that produced this were not recorded." in page.text(collected(tmp_path))
    command = "sil reproduce small.toml --only a2c"
    provenance.record(tmp_path / "Maze_a2c", command)
    found = page.text(collect.collect(small(LONG), tmp_path, small(LONG)))
    assert f"Produced by (1 of 2 runs: not recorded)\n\n    {command}\n\n" in found
    provenance.record(tmp_path / "Maze_a2c+exp", f"{command}+exp")
    found = page.text(collect.collect(small(LONG), tmp_path, small(LONG)))
    assert f"Produced by\n\n    {command}\n    {command}+exp\n\n" in found
