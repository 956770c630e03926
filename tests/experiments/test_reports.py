"""What experiments train, and what their pages make of the numbers."""

import csv
import json
import shutil
from itertools import product

import numpy as np
import pytest

from self_imitation.cli.main import main
from self_imitation.errors import UsageError
from self_imitation.experiments import contrasts
from self_imitation.experiments.atari import ACPER, Atari, AtariBonuses, paper_score
from self_imitation.experiments.campaign import Settings
from self_imitation.experiments.grid_worlds import GridWorlds
from self_imitation.experiments.mujoco import TASKS, Mujoco
from self_imitation.experiments.sparse import TASKS as SPARSE_TASKS
from self_imitation.experiments.sparse import Sparse
from self_imitation.experiments.systems import VARIANTS, Systems
from self_imitation.storage import config_file

SETTINGS = Settings(steps=4096, seeds=3)
atari, grid_worlds, mujoco, sparse, systems = Atari(), GridWorlds(), Mujoco(), Sparse(), Systems()


def write_runs(experiment, folder, settings=SETTINGS):
    """Run directories as training leaves them: run i ends with return 100 i + s for its seed s."""
    for place, config in enumerate(experiment.configs(settings, folder)):
        run = folder / config.out
        run.mkdir()
        (run / "config.json").write_text(json.dumps(config_file.to_json(config)))
        (run / "summary.json").write_text(json.dumps({"machines": ["a machine"]}))
        with open(run / "metrics.csv", "w", newline="") as file:
            names = ["seed", "step", "episodes", "return_mean", "return_best", "length_mean", "return_latest"]
            writer = csv.DictWriter(file, [*names, "steps_per_second", "seconds"], lineterminator="\n")
            writer.writeheader()
            for step in (2048, 4096):
                for seed in range(3):
                    final = 100 * place + seed
                    writer.writerow(
                        dict.fromkeys(names, place)
                        | {"seed": seed, "step": step, "return_latest": final - (step == 2048)}
                        | {"steps_per_second": 10, "seconds": 5, "return_best": seed * (step - 2048)}
                    )
    return folder


def test_mujoco_compares_three_agents_on_six_tasks_with_normal_and_delayed_rewards(tmp_path):
    configs = mujoco.configs(mujoco.defaults, tmp_path)
    cases = {(config.env, config.agent, config.sil.optimiser, config.delay) for config in configs}
    assert len(cases) == len({config.out for config in configs}) == len(configs) == 36
    for delay, case in product((1, 20), [("ppo", "shared"), ("ppo+sil", "shared"), ("ppo+sil", "own")]):
        assert {env for env, *rest in cases if rest == [*case, delay]} == {f"mujoco:{task}" for task in TASKS}
    assert {(config.steps, config.seed_numbers) for config in configs} == {(1_000_000, tuple(range(10)))}


def test_mujoco_report_uses_the_last_hundred_episodes_of_each_seed(tmp_path):
    lines = mujoco.report(SETTINGS, write_runs(mujoco, tmp_path), tmp_path / "report")
    assert [line["final_mean"] for line in lines] == [100 * place + 1 for place in range(36)]
    half = 4.302653 / 3**0.5  # Student's, of three seeds one apart
    assert all(line["final_high"] - line["final_mean"] == pytest.approx(half, rel=1e-5) for line in lines)
    with open(tmp_path / "report" / "contrasts.csv") as file:
        rows = {(row["task"], int(row["delay"]), row["agent"]): float(row["mean"]) for row in csv.DictReader(file)}
    assert len(rows) == 24
    assert rows["Hopper", 1, "ppo+sil"] == 100, "the second run minus the first"
    assert rows["Ant", 20, "ppo+sil, own optimiser"] == 200, "the third minus the first"
    page = (tmp_path / "report" / "README.md").read_text()
    assert "sil reproduce mujoco --steps 4096 --seeds 3\n" in page
    assert "- ppo+sil against ppo, rewards normal: higher on Hopper, Walker2d, Swimmer, " in page
    assert "Hopper is below it (1 against 2,316)" in page
    assert "Swimmer reaches it (601 against 111)" in page
    assert "| normal | Swimmer | 601 (599 to 603) | 701 (699 to 703) | 801 (799 to 803) |" in page
    assert (tmp_path / "report" / "figure.png").stat().st_size > 10_000


def test_atari_shows_both_agents_beside_the_papers_scores(tmp_path):
    usual = {(c.env, c.agent): (c.steps, c.seed_numbers) for c in atari.configs(atari.defaults, tmp_path)}
    assert usual["atari:Freeway", "a2c"] == usual["atari:Freeway", "a2c+sil"] == (3_000_000, (0, 1, 2))
    assert usual["atari:MontezumaRevenge", "a2c+sil"] == (5_000_000, (0, 1, 2))
    assert len(usual) == 4
    lines = atari.report(SETTINGS, write_runs(atari, tmp_path), tmp_path / "report")
    assert [(line["game"], line["agent"], line["final_mean"], line["paper"]) for line in lines] == [
        ("Freeway", "a2c+sil", 1.0, 34.0),
        ("Freeway", "a2c", 101.0, 0.0),
        ("MontezumaRevenge", "a2c+sil", 201.0, 2500.0),
        ("MontezumaRevenge", "a2c", 301.0, 5.8),
    ]
    page = (tmp_path / "report" / "README.md").read_text()
    assert "sil reproduce atari --steps 4096\n" in page
    assert "on a machine.\nTraining took 0.3 minutes in total." in page
    assert "Unfinished" not in page
    assert "| Freeway | a2c | 4,096 | 101 (98.52 to 103) | 100, 101, 102 | not yet, 4.096k, 4.096k | 4,096 |" in page


def test_grid_worlds_report_ranks_the_agents(tmp_path):
    lines = grid_worlds.report(SETTINGS, write_runs(grid_worlds, tmp_path), tmp_path / "report")
    means = [(line["env"], line["agent"], line["final_mean"]) for line in lines]
    assert means[1] == ("key-door-treasure", "a2c+exp", 1.0)
    assert means[7] == ("apple-key-door-treasure", "a2c+sil+exp", 7.0)
    assert all(line["solved"] == 0 for line in lines)
    page = (tmp_path / "report" / "README.md").read_text()
    assert "a2c ends at 0.00, a2c+exp ends at 1.00, a2c+sil ends at 2.00, a2c+sil+exp ends at 3.00 |" in page
    assert "| apple-key-door-treasure | a2c+sil+exp | 7.00 (7.00 to 7.00) | 0 of 3 (0% to 56%) | never |" in page


def test_bonuses_and_acper_are_compared_on_games_of_the_paper(tmp_path):
    bonuses, acper = (kind().configs(kind.defaults, tmp_path) for kind in (AtariBonuses, ACPER))
    assert {(c.env, c.agent) for c in bonuses} == {
        *product(("atari:MontezumaRevenge", "atari:Venture"), ("a2c+sil", "a2c+sil+cts", "a2c+sil+rnd"))
    }
    games = ("atari:Freeway", "atari:Gravitar", "atari:Bowling", "atari:Breakout")
    assert {(c.env, c.agent) for c in acper} == {*product(games, ("a2c", "a2c+sil", "acper"))}
    assert {c.steps for c in bonuses} == {5_000_000}
    assert {c.steps for c in acper} == {3_000_000}
    assert all(c.seeds >= 2 for c in (*bonuses, *acper))
    page = tmp_path / "report" / "README.md"
    AtariBonuses().report(SETTINGS, write_runs(AtariBonuses(), tmp_path), page.parent)
    assert "| Venture | a2c+sil | 4,096 |" in page.read_text()


def test_scores_of_the_paper():
    assert paper_score("Gravitar", "a2c+sil") == 2722, "hard exploration games"
    assert paper_score("Bowling", "a2c+sil") == 31.1, "49 games"
    assert (paper_score("Bowling", "acper"), paper_score("Bowling", "a2c")) == (59.3, 31.2)
    assert np.isnan(paper_score("Venture", "a2c+sil+cts"))


def test_systems_compares_all_agents_where_apples_distract(tmp_path):
    configs = systems.configs(systems.defaults, tmp_path)
    assert len({config.out for config in configs}) == len(configs) == len(VARIANTS)
    assert {"a2c", "a2c+sil+exp", "acer", "acper", "a2c+sil+rnd", "a2c+sil+simhash"} <= {c.agent for c in configs}
    assert {config.env for config in configs} == {"apple-key-door-treasure"}
    assert {(config.steps, config.seeds) for config in configs} == {(2_000_000, 8)}
    assert {c.sil.temperature for c in configs if c.agent == "a2c+sil+exp"} == {0, 0.01, 0.1, 1}
    lines = systems.report(SETTINGS, write_runs(systems, tmp_path), tmp_path / "report")
    assert [line["agent"] for line in lines] == list(VARIANTS)
    page = (tmp_path / "report" / "README.md").read_text()
    assert "sil reproduce systems --steps 4096 --seeds 3\n" in page
    assert "first solved the task: a2c+sil+exp, temperature 1 after" in page, "the first run with a return above 8.55"
    assert "| the paper's agents | a2c+exp | 1.00 (1.00 to 1.00) | 0 of 3 (0% to 56%) | never |" in page


def test_sparse_compares_both_learners_with_and_without_self_imitation(tmp_path):
    configs = sparse.configs(sparse.defaults, tmp_path)
    assert len({config.out for config in configs}) == len(configs) == 24
    assert [config.agent for config in configs[:4]] == ["a2c", "a2c+sil", "ppo", "ppo+sil"]
    assert {config.seed_numbers for config in configs} == {tuple(range(8))}
    assert all(config.sil.keep == "informative" for config in configs), "the default for any environment"
    assert {config.steps for config in configs} == {task.steps for task in SPARSE_TASKS.values()}
    sparse.report(SETTINGS, write_runs(sparse, tmp_path), tmp_path / "report")
    with open(tmp_path / "report" / "contrasts.csv") as file:
        rows = {(row["task"], row["learner"]): float(row["mean"]) for row in csv.DictReader(file)}
    assert len(rows) == 12
    assert set(rows.values()) == {100}
    page = (tmp_path / "report" / "README.md").read_text()
    assert "| DoorKey 8x8 | a2c | 1.00 (-1.48 to 3.48) | 2 of 3 |" in page
    assert "- a2c+sil against a2c: higher on DoorKey 8x8, KeyCorridor S3R3," in page


def test_differences_hold_together_and_unknown_ones_are_named():
    few, many = np.array([1.0, 2.0, 3.0]), np.array([11.0, 12.0, 13.0])
    alone = contrasts.differences({"a": (many, few)})["a"]
    found = contrasts.differences({"a": (many, few), "b": (few, few), "c": (few, many), "d": (few * np.nan, many)})
    assert found["a"]["mean"] == alone["mean"] == 10
    assert found["a"]["high"] - 10 > alone["high"] - 10 > 0, "wider, since all four are read together"
    verdicts = {name: contrasts.verdict(line) for name, line in found.items()}
    assert contrasts.in_words(verdicts) == "higher on a; no difference detected on b; lower on c; unknown on d"
    assert contrasts.cell(found["d"]) == "unknown: a seed has finished no episode"
    assert contrasts.cell(found["b"], 1).startswith("+0.0 (-")


def test_report_only_names_unfinished_and_missing_runs(capsys, tmp_path):
    """Nothing is trained."""
    folder = write_runs(atari, tmp_path, atari.defaults)
    arguments = ["reproduce", "atari", "--report-only", "--runs", str(folder), "--out", str(tmp_path / "report")]
    assert main(arguments) == 0
    unfinished = "Unfinished runs: Freeway_a2c+sil (4,096 of 3,000,000 steps), Freeway_a2c (4,096"
    assert f"**{unfinished}" in (tmp_path / "report" / "README.md").read_text()
    assert unfinished in capsys.readouterr().out
    assert not (folder / "Freeway_a2c" / "checkpoints").exists()
    assert main([*arguments, "--steps", "4000"]) == 2
    err = capsys.readouterr().err
    assert "steps: 4000 is not allowed; " in err
    assert "Freeway_a2c+sil' is already at step 4096; allowed: that or more" in err
    shutil.rmtree(folder / "Freeway_a2c")
    assert main(arguments) == 0
    page = (tmp_path / "report" / "README.md").read_text()
    assert "Not run: Freeway_a2c.**" in page
    assert "| Freeway | a2c |" not in page
    shutil.rmtree(folder)
    assert main(arguments) == 2
    assert "has no run of this experiment; train without --report-only" in capsys.readouterr().err


def test_what_was_not_run_is_marked_and_compared_with_nothing(tmp_path):
    write_runs(mujoco, tmp_path)
    shutil.rmtree(tmp_path / "Hopper_ppo_delay-20")
    shutil.rmtree(tmp_path / "Ant_ppo+sil_delay-1")
    mujoco.report(SETTINGS, tmp_path, tmp_path / "report")
    page = (tmp_path / "report" / "README.md").read_text()
    assert "**Not run: Ant_ppo+sil_delay-1, Hopper_ppo_delay-20.**" in page
    assert "| delayed by 20 | Hopper | not run | " in page
    assert "| delayed by 20 | Hopper | not run | not run | not listed as better |" in page
    assert "; not run on Ant." in page
    assert "reading all 21 together" in page


@pytest.mark.parametrize("summary", ["", "null", "{}", '{"machines": 5}', '{"machines": [1]}'])
def test_a_report_says_where_a_run_does_not_name_its_machine(tmp_path, summary):
    write_runs(atari, tmp_path)
    (tmp_path / "Freeway_a2c" / "summary.json").write_text(summary)
    atari.report(SETTINGS, tmp_path, tmp_path / "report")
    assert "on a machine and an unnamed machine.\n" in (tmp_path / "report" / "README.md").read_text()


def test_metrics_without_the_needed_column_are_named(tmp_path):
    write_runs(atari, tmp_path)
    table = tmp_path / "Freeway_a2c" / "metrics.csv"
    table.write_text(table.read_text().replace("return_latest", "other"))
    with pytest.raises(UsageError, match=r"metrics of .*Freeway_a2c' have no column 'return_latest'"):
        atari.report(SETTINGS, tmp_path, tmp_path / "report")
