"""Experiments as data: what the shipped ones are, and what is wrong with a file."""

import dataclasses
import re
from itertools import product
from pathlib import Path

import pytest
from experiments.small import SMALL, small

from self_imitation.errors import UsageError
from self_imitation.experiments import definition as definitions
from self_imitation.experiments import runs, search

PAPER = ("montezuma", "grid-worlds", "hard-exploration", "atari-49", "acper", "mujoco", "mujoco-delayed")
BEYOND = (
    *("mujoco-tuned", "mujoco-ant", "mujoco-search", "systems", "sparse", "kept-episodes", "atari-bonuses"),
    *("own-value", "own-value-bonus"),
)


@pytest.mark.parametrize("name", [*PAPER, *BEYOND])
def test_shipped_experiments_can_be_trained_and_survive_being_written(name):
    definition = definitions.read(name)
    runs.check(definition)
    assert definitions.parse(definitions.to_toml(definition), "copy", "copy") == definition
    directories = [definition.directory(case.task, case.agent) for case in runs.cases(definition)]
    assert len(set(directories)) == len(directories) == len(definition.tasks) * len(definition.agents)


def test_every_shipped_experiment_is_listed_above():
    assert definitions.shipped() == sorted([*PAPER, *BEYOND])


DOCS = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()


def test_the_page_about_experiments_lists_all_of_them_and_every_field():
    assert set(re.findall(r"^\| `([a-z0-9-]+)` \|", DOCS.split("sil reproduce all")[0], re.M)) == set(
        definitions.shipped()
    )
    for kind in (definitions.Definition, definitions.Task, definitions.Agent, definitions.Claim):
        for field in dataclasses.fields(kind):
            assert f"`{field.name}`" in DOCS or field.name in ("tasks", "agents", "claims"), field.name


def test_the_examples_of_the_page_are_experiments():
    whole, part = re.findall(r"```toml\n(.*?)```", DOCS, re.DOTALL)
    runs.check(definitions.parse(whole, "lake.toml", "lake"))
    text = whole.replace('[[agent]]\nagent = "ppo+sil"\n', part, 1)
    (searched,) = (agent for agent in definitions.parse(text, "lake.toml", "lake").agents if agent.search)
    assert len(search.candidates(searched)) == 4


def configs(name):
    definition = definitions.read(name)
    return [runs.run_config(definition, case, Path("runs")) for case in runs.cases(definition)]


def test_grid_worlds_are_four_agents_on_two_mazes():
    agents = ("a2c", "a2c+exp", "a2c+sil", "a2c+sil+exp")
    assert [(c.env, c.agent) for c in configs("grid-worlds")] == [
        *product(("key-door-treasure", "apple-key-door-treasure"), agents)
    ]
    assert {c.seed_numbers for c in configs("grid-worlds")} == {(0, 1, 2, 3, 4)}


@pytest.mark.parametrize(("name", "exponent"), [("hard-exploration", 0.1), ("montezuma", 0.1), ("atari-49", 0.4)])
def test_atari_experiments_have_the_papers_length_and_importance_exponent(name, exponent):
    own = configs(name)
    assert {(c.steps, c.seeds) for c in own} == {(50_000_000, 3)}
    assert {c.sil.importance_exponent for c in own if c.agent == "a2c+sil"} == {exponent}
    assert len(own) == {"hard-exploration": 14, "montezuma": 2, "atari-49": 147}[name]


def test_hard_exploration_has_the_papers_scores():
    tasks = {task.name: task.paper for task in definitions.read("hard-exploration").tasks}
    assert tasks["Hero"] == {"a2c": 28008.1, "a2c+sil": 33069, "A3C-CTS": 15210, "Reactor-PixelCNN": 28000}
    assert tasks["Venture"]["TRPO-AE-SimHash"] == 445
    assert len(tasks) == 7


def test_montezuma_keeps_the_best_episode_of_each_100_000_steps():
    assert definitions.read("montezuma").best_every == 100_000


@pytest.mark.parametrize(("name", "delay"), [("mujoco", 1), ("mujoco-delayed", 20)])
def test_mujoco_compares_two_agents_on_six_tasks(name, delay):
    own = configs(name)
    assert {(c.steps, c.seeds, c.delay, c.sil.optimiser) for c in own} == {(1_000_000, 10, delay, "shared")}
    assert [c.out for c in own[:2]] == [f"runs/Hopper_{agent}_delay-{delay}" for agent in ("ppo", "ppo+sil")]
    assert len(own) == 12


def test_runs_that_are_committed_count_as_finished():
    folder = Path(__file__).parents[2] / "results" / "mujoco" / "runs"
    configs = [c for name in ("mujoco", "mujoco-delayed") for c in _in(folder, definitions.read(name))]
    wanted = {runs.directory(c).path.name: c for c in configs}
    for run in folder.iterdir():
        assert runs.is_finished(wanted[run.name])
        runs.require_same(runs.directory(wanted[run.name]), wanted[run.name])


def _in(folder, definition):
    return [runs.run_config(definition, case, folder) for case in runs.cases(definition)]


def test_systems_compares_all_agents_where_apples_distract():
    own = configs("systems")
    assert {"a2c", "a2c+sil+exp", "acer", "acper", "a2c+sil+rnd", "a2c+sil+simhash"} <= {c.agent for c in own}
    assert {c.sil.temperature for c in own if c.agent == "a2c+sil+exp"} == {0, 0.01, 0.1, 1}
    assert {(c.env, c.steps, c.seeds) for c in own} == {("apple-key-door-treasure", 2_000_000, 8)}


def test_sparse_compares_both_learners_with_the_defaults_for_any_environment():
    own = configs("sparse")
    assert [c.agent for c in own[:4]] == ["a2c", "a2c+sil", "ppo", "ppo+sil"]
    assert all(c.sil.keep == "informative" for c in own)
    assert {c.steps for c in own} == {1_000_000, 500_000, 300_000}


def test_mujoco_tuned_searches_the_papers_lists():
    lists = [agent.search for agent in definitions.read("mujoco-tuned").agents]
    rates = (3e-4, 1e-4, 5e-5, 3e-5)
    assert lists[0] == {"optimiser.learning_rate": rates}
    assert lists[1] == {
        "optimiser.learning_rate": rates,
        "sil.vf_coef": (0.005, 0.025),
        "sil.priority_exponent": (0.6, 1.0),
    }


def test_a_scale_shortens_every_task_and_steps_only_the_longer_ones():
    definition = definitions.read("sparse")
    tenth = definitions.resized(definition, scale=0.1)
    assert [tenth.steps_of(task) for task in tenth.tasks] == [100_000, 100_000, 50_000, 30_000, 50_000, 50_000]
    short = definitions.resized(definition, steps=400_000, seeds=2, seed=8)
    assert [short.steps_of(task) for task in short.tasks] == [400_000] * 3 + [300_000] + [400_000] * 2
    assert (short.seeds, short.seed) == (2, 8)


def test_settings_of_an_experiment_apply_to_the_agents_that_have_them():
    text = SMALL.replace("log_every", '"sil.updates" = 2, log_every').replace('"a2c+exp"', '"a2c+sil"')
    plain, imitating = (runs.run_config(small(text), case, Path("runs")) for case in runs.cases(small(text)))
    assert imitating.sil.updates == 2
    assert plain.sil.updates == 4, "as if it had not been given"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("title", "titel"), "small.toml: field: 'titel' is unknown; did you mean 'title'?"),
        (("steps = 160", "steps = 1.5"), "small.toml: steps: 1.5 is not allowed; allowed: an integer >= 1"),
        (("steps = 160", "steps = "), "small.toml: not valid TOML: Invalid value (at line 4, column 9)"),
        (
            ("solved = 6.65", "solved = true"),
            "small.toml: task 1: solved: True is not allowed; allowed: a finite number",
        ),
        (("solved", "sovled"), "small.toml: task 1: field: 'sovled' is unknown; did you mean 'solved'?"),
        (('name = "Maze"', ""), "small.toml: task 1: name: '' is not allowed; allowed: a name on one line"),
        (('"a2c"]]', '"a2c+sil"]]'), "small.toml: compare: agent: 'a2c+sil' is unknown; did you mean 'a2c'"),
        (('agent = "a2c+exp"', 'agent = "a2c"'), "small.toml: agent: 'a2c' is used twice"),
        (("[[task]]", "[task]"), "small.toml: task: one or more tables [[task]] are needed"),
        (('"return_mean"', '"mean"'), "small.toml: measure: 'mean' is not allowed; allowed: one of return_mean"),
        (
            ("seeds = 2", 'run_name = "{task}"'),
            "small.toml: run_name: '{task}' is not allowed; allowed: text with {task}",
        ),
    ],
)
def test_a_mistake_in_a_file_is_one_line_that_names_the_place(change, message):
    with pytest.raises(UsageError) as raised:
        small(SMALL.replace(*change))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ('"key-door', '"kee-door'),
            "small: task 'Maze', agent 'a2c': env: 'kee-door-treasure' is unknown; did you mean",
        ),
        (('agent = "a2c"', 'agent = "a3c"\nname = "a2c"'), "small: task 'Maze', agent 'a2c': agent: 'a3c' is unknown"),
        (("log_every", "log_evry"), "small: task 'Maze', agent 'a2c': setting: 'log_evry' is unknown; did you mean"),
        (("log_every = 80", 'log_every = "x"'), "log_every: 'x' is not allowed; allowed: an integer >= 1"),
        (("log_every = 80", "seeds = 80"), "settings: 'seeds' is a field of its own in an experiment"),
        (("log_every = 80", '"ppo.gamma" = 0.9'), "small: settings: ppo.gamma has no effect with any agent"),
    ],
)
def test_settings_and_names_are_checked_before_training(change, message):
    with pytest.raises(UsageError) as raised:
        runs.check(small(SMALL.replace(*change)))
    assert message in str(raised.value)


def test_the_paper_table_of_hard_games_is_in_the_definition_of_acper_too():
    tasks = {task.name: task.paper for task in definitions.read("acper").tasks}
    assert tasks["Bowling"] == {"a2c": 31.2, "acper": 59.3, "a2c+sil": 31.1}
