"""The documentation's examples run, and what it names exists."""

import importlib
import inspect
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from campaign.__main__ import parser
from helpers import small_run

import self_imitation
from self_imitation import registry
from self_imitation.environments import registry as environments
from self_imitation.networks import actor_critic as networks

ROOT = Path(__file__).parents[1]
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
RESULTS = sorted((ROOT / "results").glob("*/README.md"))
OTHERS = [
    path for folder in ("docs/reference", "examples", "results") for path in sorted((ROOT / folder).rglob("*.md"))
]
PAGES = [*DOCS, *OTHERS, ROOT / "CHANGELOG.md"]
SMALL = {
    "log_every": 500,
    "num_envs": 4,
    "num_steps": 32,
    "sil.batch_size": 32,
    "sil.buffer_size": 500,
}
SMALL_PPO = {"ppo.num_minibatches": 4, "ppo.update_epochs": 2}


def code_of(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def flags_of(settings: dict[str, object]) -> list[str]:
    return [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))]


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A working directory for a page's modules. What they register is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for owner, name in (
        (registry, "_learners"),
        (registry, "_bonuses"),
        (networks, "_factories"),
        (environments, "_entries"),
    ):
        monkeypatch.setattr(owner, name, dict(getattr(owner, name)))

    def write(*pages: str) -> list[str]:
        """Write the examples that begin with a file name as modules; returns the others."""
        others = []
        for code in (code for page in pages for code in code_of(page)):
            named = re.match(r"# (\w+)\.py\n", code)
            if named:
                (tmp_path / f"{named[1]}.py").write_text(code)
                monkeypatch.delitem(sys.modules, named[1], raising=False)
            else:
                others.append(code)
        return others

    return write


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """Runs of `self_imitation.train`, which makes few steps with small batches."""
    train, runs = self_imitation.train, []

    def train_briefly(env, agent, steps, seeds=1, settings=None, **others):
        small = SMALL | (SMALL_PPO if agent.startswith("ppo") else {})
        if "sil" not in agent.split("+"):
            small = {name: value for name, value in small.items() if not name.startswith("sil.")}
        settings = {**small, **(settings or {})}
        assert steps >= 10_000
        small_size = {"steps": 1500, "seeds": min(seeds, 2), "out": tmp_path / "run", "settings": settings}
        runs.append(train(env, agent=agent, **small_size, **others))
        return runs[-1]

    monkeypatch.setattr(self_imitation, "train", train_briefly)
    return runs


EXTENSIONS = {
    "docs/new-bonus.md": ("elliptical_bonus", "sil_imitated"),
    "docs/new-network.md": ("kl",),
    "docs/new-environment.md": ("bonus",),
}


@pytest.mark.parametrize("page", EXTENSIONS)
def test_the_component_of_the_page_trains(page, modules, trained):
    (example,) = modules(page)
    exec(example, {})
    (run,) = trained
    last = run.metrics()[-1]
    assert last["step"] >= 1500
    assert all(np.isfinite(last[name]) for name in EXTENSIONS[page])


def test_the_learner_of_the_page_trains_and_its_run_resumes(modules, trained):
    (example,) = modules("docs/new-learner.md")
    exec(example, {})
    (run,) = trained
    last = run.metrics()[-1]
    assert last["step"] >= 1500
    assert all(np.isfinite(last[name]) for name in ("entropy", "sil_imitated"))
    resumed = self_imitation.resume(run.path, steps=3000)
    assert resumed.metrics()[-1]["step"] >= 3000
    assert resumed.config.components["reinforce"].ent_coef == 0.02


def test_the_script_of_the_page_is_a_sil_that_knows_the_component(modules, capsys):
    assert modules("docs/new-learner.md", "docs/extending.md")[1:] == []
    script = importlib.import_module("my_sil")
    flags = flags_of({**SMALL, "reinforce.ent_coef": 0.02, "steps": 1000, "seeds": 1})
    assert script.main(["train", "--agent", "reinforce+sil", *flags]) == 0
    assert script.main(["list"]) == 0
    output = capsys.readouterr().out
    assert "reinforce+sil on key-door-treasure: 1 seed" in output
    assert "REINFORCE with a baseline" in output


def test_the_learner_of_the_page_ignores_reset_steps_and_unfinished_episodes(modules):
    """With one step of a finished episode, only that step's gradient is left."""
    modules("docs/new-learner.md")
    my_learner = importlib.import_module("my_learner")
    import optax

    from self_imitation.algorithm.components import Exploration
    from self_imitation.networks.distributions import Categorical
    from self_imitation.types import Rollout, TrainState

    flags = {"terminated": jnp.array([[True], [False], [False]]), "truncated": jnp.zeros((3, 1), bool)}
    observation = jnp.eye(3)[:, None]
    rollout = Rollout(
        observation=observation,
        action=jnp.zeros((3, 1), jnp.int32),
        reward=jnp.array([[2.0], [100.0], [100.0]]),
        valid=jnp.array([[True], [False], [True]]),
        next_observation=None,
        last_observation=observation[0],
        episode_return=jnp.zeros((3, 1)),
        episode_length=jnp.zeros((3, 1), jnp.int32),
        extras={},
        **flags,
    )
    params = {"policy": jnp.zeros((3, 2)), "value": jnp.zeros(3)}

    def actor_critic(params, observation):
        return Categorical(observation @ params["policy"]), observation @ params["value"]

    learner = my_learner.Reinforce(my_learner.ReinforceConfig(ent_coef=0.0, vf_coef=1.0), True)
    optimiser = optax.sgd(1.0)
    train_state = TrainState(params, optimiser.init(params))
    _, after, metrics = learner.update(
        actor_critic, optimiser, None, train_state, rollout, Exploration(), jax.random.key(0)
    )
    np.testing.assert_allclose(after.params["policy"], [[1.0, -1.0], [0, 0], [0, 0]], atol=1e-6)  # (1 - 1/2) * 2
    np.testing.assert_allclose(after.params["value"], [2.0, 0, 0], atol=1e-6)
    assert metrics["value_loss"] == pytest.approx(2.0)


def test_the_bonus_of_the_page_falls_with_the_number_of_visits(modules):
    modules("docs/new-bonus.md")
    my_bonus = importlib.import_module("my_bonus")
    from tabular import make_rollout

    from self_imitation.types import Discrete, Spec

    config = my_bonus.EllipticalConfig(scale=2.0, ridge=0.5)
    bonus = my_bonus.Elliptical(config, Spec((2,), Discrete(2), None))
    state = bonus.init(jax.random.key(0), 2)
    reached = np.array([[[3.0, 0.0], [3.0, 0.0]], [[0.0, 1.0], [50.0, 50.0]]], np.float32)
    rollout = make_rollout(reached, np.zeros((2, 2)), reached[0], reached, valid=[[True, True], [True, False]])
    state, exploration, _ = bonus.update(state, rollout, jax.random.key(0))
    visited = np.array([[1.0, 3.0, 0.0], [1.0, 3.0, 0.0], [1.0, 0.0, 1.0]])
    matrix = 0.5 * np.eye(3) + visited.T @ visited
    expected = 2.0 * np.sqrt(np.einsum("ni,ij,nj->n", visited, np.linalg.inv(matrix), visited))
    np.testing.assert_allclose(state, matrix, rtol=1e-5)
    np.testing.assert_allclose(exploration.reward.reshape(-1)[:3], expected, rtol=1e-4)
    assert expected[0] < expected[2]


def test_the_pure_jax_environment_of_the_page_has_the_returns_that_it_states(modules):
    modules("docs/new-environment.md")
    env = importlib.import_module("deep_sea").DeepSea()

    def play(action: int) -> tuple[float, int]:
        state, total, steps, ended = env.reset(jax.random.key(0)), 0.0, 0, False
        step = jax.jit(env.step)
        while not ended:
            result = step(state, jnp.int32(action))
            state, total, steps = result.state, total + float(result.reward), steps + 1
            ended = bool(result.terminated)
        assert all(
            value < levels for value, levels in zip(result.observation, env.spec.observation_levels, strict=True)
        )
        return total, steps

    assert play(1) == (pytest.approx(0.99), env.spec.max_episode_steps)
    assert play(0) == (0.0, env.spec.max_episode_steps)


def test_the_gymnasium_environment_of_the_page_trains(modules, capsys):
    """The page's own module, in the working directory, under the id that the page gives."""
    from self_imitation.cli.main import main

    modules("docs/new-environment.md")
    (command,) = re.findall(r"^    sil (train gym:my_package.*)$", (ROOT / "docs/new-environment.md").read_text(), re.M)
    flags = flags_of({**SMALL, **SMALL_PPO, "seeds": 1, "steps": 2000})
    assert main([*command.split(), *flags]) == 0
    assert "environments by gymnasium, in runs/gym-my-package-Corridor-v0_ppo+sil_" in capsys.readouterr().out


def test_the_function_of_the_page_makes_environments(modules, trained):
    modules("docs/new-environment.md")
    make, *_ = code_of("docs/environments.md")
    exec(make, {"__name__": "my_script"})
    assert trained[0].config.env == "python:my_script.make"


TABLES = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/settings.md").read_text(), re.DOTALL)


def test_the_files_of_the_settings_page_are_read(tmp_path):
    from self_imitation.cli.train import read_config

    for name, table in zip(("config", "preset"), TABLES, strict=True):
        (tmp_path / name).with_suffix(".toml").write_text(table)
    config = read_config(["--config", str(tmp_path / "config.toml")])
    assert (config.env_kwargs, config.sil.updates) == ({"is_slippery": False}, 8)
    config = read_config(["--preset", str(tmp_path / "preset.toml")])
    assert (config.preset, config.components["ppo"].gamma) == ("preset.toml", 0.98)


def test_the_delayed_reward_of_the_page_wraps_an_environment():
    pytest.importorskip("mujoco")
    _, search, wrapper = code_of("docs/environments.md")
    space: dict = {}
    exec(wrapper, space)
    space["env"].reset(seed=0)
    assert space["env"].step(space["env"].action_space.sample())[1] == 0.0
    exec(search, space)


def test_the_readme_example_runs(trained):
    (example,) = code_of("README.md")
    space = {"observation": np.array([2.0, 8.0, 1.0, 1.0, 1.0])}
    exec(example.replace("episodes=100", "episodes=2"), space)
    assert space["action"] in range(4)


def test_the_callbacks_of_the_page_are_called(trained, capsys):
    (example,) = code_of("docs/callbacks.md")
    exec(example, {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("trains on ")
    assert [line for line in lines if re.match(r"1536 \d", line)], "the evaluation"
    assert len([line for line in lines if line.endswith(" steps/s")]) == 3
    assert lines[-1] == "finished after 3 rows"


def test_pages_name_all_that_callbacks_have():
    from self_imitation.training.callbacks import Callback
    from self_imitation.training.context import Context

    page = (ROOT / "docs/callbacks.md").read_text()
    methods = [name for name in vars(Callback) if not name.startswith("_")]
    assert all(f"`{name}(" in page for name in methods)
    named = set(re.findall(r"`context\.(\w+)", page))
    assert named
    assert all(hasattr(Context, name) or f"self.{name}" in inspect.getsource(Context) for name in named)


def test_self_imitation_in_your_own_loop_learns_what_once_went_well():
    """The page's own code: two states, in each of which one of three actions pays. Imitation alone learns it."""
    setup, once, each, own_value = code_of("docs/your-own-actor-critic.md")
    assert len([line for line in setup.split("@jax.jit")[1].splitlines() if line.strip()]) <= 12
    key = jax.random.key(0)
    shapes = {"body": (2, 16), "policy": (16, 3), "value": (16, 1)}
    space = {"params": {name: 0.3 * jax.random.normal(key, shape) for name, shape in shapes.items()}, "key": key}
    exec(setup, space)
    good = jnp.array([2, 0])  # the action that pays in each of the two states

    def act(number: int):
        """Three-step episodes with random actions: the trained policy never acts."""
        keys = jax.random.split(jax.random.key(number))
        state = jax.random.randint(keys[0], (6, 4), 0, 2)
        action = jax.random.randint(keys[1], (6, 4), 0, 3)
        ended = jnp.tile((jnp.arange(6) % 3 == 2)[:, None], (1, 4))
        reward = (action == good[state]).astype(jnp.float32)
        return space["Steps"](jax.nn.one_hot(state, 2), action, reward, ended)

    space["steps"] = act(0)
    exec(once, space)
    for number in range(300):
        space["steps"], space["key"] = act(number), jax.random.key(1000 + number)
        exec(each, space)
    distribution, _ = space["actor_critic"](space["train_state"].params, jnp.eye(2))
    np.testing.assert_array_equal(distribution.mode(), good)

    policys = space["train_state"].params["value"]
    exec(own_value, space)
    again = own_value.rpartition("value_state = TrainState")[2].partition("\n")[2]
    for number in range(200):
        space["steps"], space["key"] = act(number), jax.random.key(number)
        exec(again, space)
    # Left to the policy's own learner, but for the rest of Adam's momentum.
    np.testing.assert_allclose(space["train_state"].params["value"], policys, atol=1e-4)
    stored = space["stored_value"](space["value_state"].params, jnp.eye(2))
    assert ((stored > 1.0) & (stored < 3.0)).all(), "returns of at most three steps, the best ones sampled most often"
    assert space["buffer"].size > 1000
    assert 0 < space["metrics"]["sil_imitated"] <= 1


def test_the_numpy_policy_of_the_page_chooses_the_same_actions(modules, tmp_path):
    modules("docs/deployment.md")
    numpy_policy = importlib.import_module("numpy_policy")
    settings = {"normalise.observations": True, "optimiser.learning_rate": 0.05}
    run = small_run(tmp_path / "run", agent="a2c", steps=200, log_every=200, **settings)
    file = tmp_path / "run/checkpoints/200/policy.safetensors"
    observations = np.random.default_rng(0).integers(13, size=(200, 5))
    chosen = [numpy_policy.load_policy(file, index)(observations) for index in range(2)]
    for seed, actions in enumerate(chosen):
        np.testing.assert_array_equal(actions, run.policy(seed).act(observations, greedy=True))
    assert (chosen[0] != chosen[1]).any()


def test_every_function_of_the_equation_map_exists():
    page = (ROOT / "docs/equations.md").read_text()
    names = re.findall(r"`((?:\w+\.)+\w+)`", page)
    assert len(names) > 25
    for name in names:
        _find(name)


def _find(name: str) -> object:
    """A module, or something in one, by its name within the package."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module("self_imitation." + ".".join(parts[:cut]))
            break
        except ModuleNotFoundError:
            continue
    for part in parts[cut:]:
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_pictures_lead_somewhere(page):
    text = page.read_text()
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", text):
        if "://" in target:
            continue
        file = page.parent / target if target else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in _anchors(file), f"{page.name}: {target}#{anchor}"
    for target in re.findall(r'src="([^"]+)"', text):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_of_the_package_that_are_named_exist(page):
    folders = "algorithm|replay|exploration|networks|environments|rollout|training|storage|experiments|report|cli"
    for path in re.findall(rf"\b((?:{folders})/[\w/]+\.py)\b", page.read_text()):
        if "NAME" not in path:
            assert (ROOT / "src/self_imitation" / path).is_file(), f"{page.name}: {path}"


def test_every_module_of_the_diagrams_exists():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    diagrams = re.search(r"## From an observation(.*?)\n## ", page, re.DOTALL)[1]
    chains = [
        chain.splitlines()
        for block in re.findall(r"```\n(.*?)```", diagrams, re.DOTALL)
        for chain in block.split("\n\n")
    ]
    assert len(chains) == 6
    for chain in chains:
        assert len(chain) <= 6
        for line in chain:
            (path,) = re.match(r"(?:→ )?(\w+(?:/\w+)+)", line).groups()
            assert (ROOT / "src/self_imitation" / f"{path}.py").is_file(), line


def test_every_folder_of_the_package_is_in_the_layout():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    layout = page.split("## Layout")[1].split("## From")[0]
    package = ROOT / "src/self_imitation"
    for folder in (path.parent.name for path in package.glob("*/__init__.py")):
        assert f"  {folder}/ " in layout, folder


def _known_flags() -> set[str]:
    """Flags of every command and of every component, with those that the pages' examples add."""
    from self_imitation.cli.main import COMMANDS
    from self_imitation.config import TrainConfig
    from self_imitation.settings import flatten

    components = {name: entry.component.Config() for name, entry in registry.components().items()}
    names = {*flatten(TrainConfig(components=components)), "reinforce.ent_coef", "elliptical.ridge"}
    names |= {"no_compilation_cache", "help", "version"}
    names |= {"logdir", "working_dir"}  # TensorBoard's, and that of ray job submit
    names |= {"wrapper", "env.is_slippery", "env.map_name", "env.max_episode_steps"}
    for module in {
        importlib.import_module(f"self_imitation.cli.{place.split(':')[0]}") for place, _ in COMMANDS.values()
    }:
        for name, kind in vars(module).items():
            if name.endswith("Arguments"):
                names |= set(kind.__dataclass_fields__)
    campaign = re.findall("--[a-z-]+", parser().format_help())
    return {f"--{name if name.startswith('env.') else name.replace('_', '-')}" for name in names} | set(campaign)


@pytest.mark.parametrize("page", [*DOCS, *RESULTS], ids=lambda page: str(page.relative_to(ROOT)))
def test_flags_that_are_named_exist(page):
    known = _known_flags()
    for flag in re.findall(r"(?<![\w-])--[a-z][\w.-]*[a-z]", page.read_text()):
        assert flag in known, f"{page.name}: {flag}"


def test_renamed_flags_of_the_changelog_exist():
    page = (ROOT / "CHANGELOG.md").read_text()
    known, renamed = _known_flags(), 0
    for row in re.findall(r"^\| (`--.*?) \| (`--.*?) \|$", page, re.M):
        before, now = (re.findall(r"`(--[\w.-]+)`", cell) for cell in row)
        assert len(before) == len(now), row
        assert known.isdisjoint(before), row
        assert known >= set(now), row
        renamed += len(now)
    assert renamed >= 20


def test_extras_of_the_readme_are_those_of_the_package():
    import tomllib

    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    table = (ROOT / "README.md").read_text().split("## Install")[1].split("## ")[0]
    first_column = "".join(re.findall(r"^\| (`.*?) \|", table, re.M))
    assert set(re.findall(r"`(\w+)`", first_column)) == extras - {"test", "test-extras", "docs"}


def test_preset_page_states_every_difference():
    from self_imitation.config import flatten, resolve

    page = (ROOT / "docs/presets.md").read_text()
    named = {name.replace("-", "_") for name in re.findall(r"`([\w.-]+)`", page)}
    for env in ("key-door-treasure", "mujoco:Hopper", "atari:Pong", "gym:CartPole-v1"):
        for agent in ("a2c+sil", "ppo+sil"):
            paper, authors = (flatten(resolve(env, preset, {"agent": agent})) for preset in ("paper", "authors"))
            assert {name for name in paper if paper[name] != authors[name]} - {"preset"} <= named


def test_the_search_space_of_the_page_is_that_of_the_registry():
    page = (ROOT / "docs/environments.md").read_text()
    for name, values in list(environments.find("mujoco:Hopper").search.items())[:2]:
        assert f"'{name}': {values}" in page


def test_every_column_of_the_metrics_is_explained():
    """Of all components that the package has."""
    from self_imitation.storage.metrics_file import EVALUATION, LEADING, TIMING

    page = (ROOT / "docs/runs.md").read_text().split("## metrics.csv")[1].split("## ")[0]
    explained = set(re.findall(r"`(\w+)`", page))
    assert {*LEADING, *TIMING, *EVALUATION, "return_latest"} <= explained
    sources = "".join(
        (ROOT / "src/self_imitation" / path).read_text() for path in ("algorithm/ppo.py", "algorithm/vtrace.py")
    )
    sources += (ROOT / "src/self_imitation/algorithm/self_imitation.py").read_text()
    sources += "".join(path.read_text() for path in (ROOT / "src/self_imitation/exploration").glob("*.py"))
    written = set(re.findall(r'"((?:sil|rnd|simhash|pixelcnn)_\w+|kl|clipped|ratio|entropy|\w*loss)"(?::|\])', sources))
    assert written
    assert written <= explained
