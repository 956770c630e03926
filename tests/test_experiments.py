"""The paper's figures: what is trained for them, several at once, and what the report makes of the numbers."""

import csv
import json
import shutil

import numpy as np
import pytest
from helpers import finish, sil

from self_imitation.training import devices
from self_imitation.config import override, resolve
from self_imitation.errors import UsageError
from self_imitation.experiments import atari, campaign, mujoco
from self_imitation.report import statistics
from self_imitation.storage import config_file
from self_imitation.training.loop import Silent
from self_imitation.validation import validate

SETTINGS = mujoco.Settings(steps=4096, seeds=3)


@pytest.fixture
def finished_runs(tmp_path):
    return leave(mujoco.configs(SETTINGS, tmp_path), tmp_path)


def leave(configs, tmp_path):
    """Directories as runs leave them: seed s ends at a return of 100 x its place in the list, plus s."""
    for place, config in enumerate(configs):
        folder = tmp_path / config.out
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config_file.to_json(config)))
        (folder / "summary.json").write_text(json.dumps({"machines": ["a machine"]}))
        with open(folder / "metrics.csv", "w", newline="") as file:
            names = ["seed", "step", "episodes", "return_mean", "return_best", "length_mean", "return_latest"]
            writer = csv.DictWriter(file, [*names, "steps_per_second", "seconds"], lineterminator="\n")
            writer.writeheader()
            for step in (2048, 4096):
                for seed in range(3):
                    final = 100 * place + seed
                    writer.writerow(
                        dict.fromkeys(names, 1)
                        | {"seed": seed, "step": step, "return_latest": final - (step == 2048)}
                        | {"steps_per_second": 10, "seconds": 5, "return_best": seed * (step - 2048)}
                    )
    return tmp_path


def test_the_mujoco_figure_compares_both_agents_on_three_tasks_plain_and_delayed(tmp_path):
    cases = {(c.env, c.agent, c.delay) for c in mujoco.configs(mujoco.Settings(), tmp_path)}
    assert len(cases) == 13
    assert ("mujoco:HalfCheetah", "ppo", 1) in cases, "to see how good PPO is"
    discounts = [(c.env, c.ppo.gamma) for c in mujoco.configs(mujoco.Settings(), tmp_path) if c.ppo.gamma != 0.99]
    assert discounts == [("mujoco:Swimmer", 0.999)]
    assert len({c.out for c in mujoco.configs(mujoco.Settings(), tmp_path)}) == 14
    for task in ("Hopper", "Walker2d", "Swimmer"):
        for agent in ("ppo", "ppo+sil"):
            assert {(f"mujoco:{task}", agent, 1), (f"mujoco:{task}", agent, 20)} <= cases
    for config in mujoco.configs(mujoco.Settings(), tmp_path):
        assert (config.steps, config.seed_numbers) == (1_000_000, (0, 1, 2, 3, 4))


def test_the_report_takes_each_seeds_last_hundred_episodes_at_the_end(finished_runs, tmp_path):
    lines = mujoco.report(SETTINGS, finished_runs, tmp_path / "report")
    assert [line.final_mean for line in lines] == [100 * place + 1 for place in range(14)]
    assert all(line.final_low >= line.final_mean - 1 and line.final_high <= line.final_mean + 1 for line in lines)
    with open(tmp_path / "report" / "contrasts.csv") as file:
        rows = {(row["task"], row["what"]): float(row["mean"]) for row in csv.DictReader(file)}
    assert rows["Hopper", "plain"] == 100, "the second run less the first"
    assert rows["Hopper", "delayed"] == 100
    assert rows["Hopper", "delayed less plain"] == 0
    page = (tmp_path / "report" / "README.md").read_text()
    assert "sil reproduce mujoco --steps 4096 --seeds 3" in page
    assert "up on Hopper, Walker2d, Swimmer; down on none" in page
    assert "Hopper is below it (1 against 2,316)" in page
    assert "Swimmer with ppo.gamma 0.999 reaches it (701 against 111)" in page
    assert "| Swimmer | ppo with ppo.gamma 0.999 | 701 (700 to 702) | 111 |" in page
    assert (tmp_path / "report" / "figure.png").stat().st_size > 10_000


def test_the_atari_figure_sets_both_agents_beside_the_papers_scores(tmp_path):
    usual = {(c.env, c.agent): (c.steps, c.seed_numbers) for c in atari.configs(atari.Settings(), tmp_path)}
    assert usual["atari:Freeway", "a2c"] == usual["atari:Freeway", "a2c+sil"] == (3_000_000, (0, 1, 2))
    assert usual["atari:MontezumaRevenge", "a2c+sil"] == (5_000_000, (0, 1, 2))
    assert len(usual) == 4
    settings = atari.Settings(steps=4096)
    leave(atari.configs(settings, tmp_path), tmp_path)
    lines = atari.report(settings, tmp_path, tmp_path / "report")
    assert [(line.game, line.agent, line.final_mean, line.paper) for line in lines] == [
        ("Freeway", "a2c+sil", 1.0, 34.0),
        ("Freeway", "a2c", 101.0, 0.0),
        ("MontezumaRevenge", "a2c+sil", 201.0, 2500.0),
        ("MontezumaRevenge", "a2c", 301.0, 5.8),
    ]
    page = (tmp_path / "report" / "README.md").read_text()
    assert "sil reproduce atari --steps 4096\n" in page
    assert "on\na machine. Training took 0.3 minutes" in page
    assert "Not at their end" not in page
    assert "| Freeway | a2c | 4,096 | 101 (100 to 102) | 100, 101, 102 | not yet, 4.096k, 4.096k | 4,096 | 0 |" in page
    assert (tmp_path / "report" / "figure.png").stat().st_size > 10_000


def test_a_report_of_runs_that_are_not_at_their_end_says_so(tmp_path):
    """As they come from another machine: nothing is trained here."""
    folder = leave(atari.configs(atari.Settings(), tmp_path), tmp_path)
    arguments = ["reproduce", "atari", "--report-only", "--runs", folder, "--out", tmp_path / "report"]
    status, output = finish(sil(*arguments))
    assert status == 0, output
    page = (tmp_path / "report" / "README.md").read_text()
    missing = "Not at their end yet: Freeway_a2c+sil (4,096 of 3,000,000 steps), Freeway_a2c (4,096"
    assert f"**{missing}" in page
    assert missing in output
    assert not (folder / "Freeway_a2c" / "checkpoints").exists(), "nothing was trained"
    status, output = finish(sil(*arguments, "--steps", 4000))
    assert status == 2
    assert "steps: 4000 is not allowed; " in output
    assert "Freeway_a2c+sil' has made 4096 already; allowed: that or more" in output
    shutil.rmtree(folder / "Freeway_a2c")
    status, output = finish(sil(*arguments))
    assert status == 2
    assert "Freeway_a2c' is not there yet; without --report-only it is trained" in output


@pytest.mark.parametrize(
    "summary", ["", "[]", "null", "{}", '{"machines": 5}', '{"machines": [1]}', '{"machines": "x"}']
)
def test_a_report_says_where_a_run_does_not_name_its_machine(tmp_path, summary):
    settings = atari.Settings(steps=4096)
    leave(atari.configs(settings, tmp_path), tmp_path)
    (tmp_path / "Freeway_a2c" / "summary.json").write_text(summary)
    atari.report(settings, tmp_path, tmp_path / "report")
    page = (tmp_path / "report" / "README.md").read_text()
    assert "on\na machine and a machine that is not named. Training" in page


def test_a_table_of_metrics_without_the_figures_column_is_named(tmp_path):
    settings = atari.Settings(steps=4096)
    leave(atari.configs(settings, tmp_path), tmp_path)
    table = tmp_path / "Freeway_a2c" / "metrics.csv"
    table.write_text(table.read_text().replace("return_latest", "other"))
    with pytest.raises(UsageError, match=r"metrics of .*Freeway_a2c' have no column 'return_latest'"):
        atari.report(settings, tmp_path, tmp_path / "report")


def test_a_run_with_other_settings_does_not_pass_for_one_of_the_figure(finished_runs):
    config = mujoco.configs(SETTINGS, finished_runs)[0]
    with pytest.raises(UsageError, match=r"is a run with ppo\.update_epochs = 10, not 9"):
        campaign.train_at_once([override(config, {"ppo.update_epochs": 9})], 1, Silent(), lambda: False)


def test_contrast_interval_holds_the_difference_and_narrows_with_the_spread():
    generator = np.random.default_rng(3)
    one, other = generator.normal(5, 1, 200), generator.normal(2, 1, 200)
    low, high = statistics.contrast_interval([one, other], [1, -1])
    assert low < one.mean() - other.mean() < high
    expected = 1.96 * np.sqrt(one.var() / 200 + other.var() / 200)
    assert (high - low) / 2 == pytest.approx(expected, rel=0.1)
    assert statistics.contrast_interval([np.ones(5), np.zeros(5)], [1, -1]) == (1.0, 1.0)


def test_several_runs_are_trained_at_once_and_picked_up_again(tmp_path):
    """Real processes; the second call finds them finished and starts none."""
    shared = {"steps": 200, "seeds": 1, "network.hidden": (64, 64)}
    configs = [
        validate(
            resolve(
                "key-door-treasure",
                "authors",
                {"agent": "a2c", "out": str(tmp_path / f"{seed}"), "seed": seed, **shared},
            )
        )
        for seed in (0, 1)
    ]
    heard = []

    class Listener(Silent):
        def message(self, text):
            heard.append(text)

    assert campaign.train_at_once(configs, 2, Listener(), lambda: False)
    assert sorted(heard) == sorted(f"{config.out}: {what}" for config in configs for what in ("begins", "done"))
    assert all((tmp_path / name / "summary.json").exists() for name in ("0", "1"))
    heard.clear()
    assert campaign.train_at_once(configs, 2, Listener(), lambda: False)
    assert heard == []


def test_runs_at_once_share_the_memory_of_a_gpu_unless_the_user_has_shared_it_out(monkeypatch):
    for name in devices.MEMORY_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XLA_FLAGS", "--ours")
    alone, among_four = devices.environment(1), devices.environment(4)
    assert "XLA_FLAGS" not in alone
    assert not set(alone) & set(devices.MEMORY_SETTINGS)
    assert among_four == {**alone, "XLA_CLIENT_MEM_FRACTION": "0.225"}
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    assert "XLA_CLIENT_MEM_FRACTION" not in devices.environment(4)


def test_a_run_that_fails_stops_the_others_and_names_its_log(tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("not a run")
    config = validate(
        resolve("key-door-treasure", "authors", {"agent": "a2c", "out": str(tmp_path / "taken"), "steps": 200})
    )
    with pytest.raises(UsageError, match=r"failed; see .*taken\.log"):
        campaign.train_at_once([config], 1, Silent(), lambda: False)
    assert "allowed: a new or an empty directory" in (tmp_path / "taken.log").read_text()


def test_jobs_are_a_whole_number_above_zero(tmp_path):
    status, output = finish(sil("reproduce", "mujoco", "--jobs", 0, "--runs", tmp_path))
    assert status == 2
    assert "jobs: 0 is not allowed" in output
