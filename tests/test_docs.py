"""What the documentation shows works, and what it names exists."""

import importlib
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def code_of(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_your_own_actor_critic_learns_what_once_went_well():
    """The page's own code: two states, in each of which one of three actions pays. Imitation alone learns it."""
    setup, once, each = code_of("docs/your-own-actor-critic.md")
    assert len([line for line in setup.split("@jax.jit")[1].splitlines() if line.strip()]) <= 12
    key = jax.random.key(0)
    shapes = {"body": (2, 16), "policy": (16, 3), "value": (16, 1)}
    space = {"params": {name: 0.3 * jax.random.normal(key, shape) for name, shape in shapes.items()}, "key": key}
    exec(setup, space)
    good = jnp.array([2, 0])  # the action that pays in each of the two states

    def act(number: int):
        """Three-step episodes, actions at random: the train_state never acts itself."""
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
    assert space["memories"].size > 1000
    assert 0 < space["metrics"]["sil_imitated"] <= 1


def test_every_function_of_the_equation_map_exists():
    page = (ROOT / "docs/equations.md").read_text()
    names = re.findall(r"`((?:algorithm|returns|memory|imitation|improvement|exploration)[\w.]*\.\w+)`", page)
    assert len(names) > 10
    for name in names:
        parts = name.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            try:
                found = importlib.import_module("self_imitation." + ".".join(parts[:cut]))
                break
            except ModuleNotFoundError:
                continue
        for part in parts[cut:]:
            found = getattr(found, part)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_preset_page_states_the_settings_that_hold():
    from self_imitation.config import flatten, resolve

    page = (ROOT / "docs/presets.md").read_text()
    settings = {name: flatten(resolve("key-door-treasure", name)) for name in ("paper", "authors")}
    differing = {k for k in settings["paper"] if settings["paper"][k] != settings["authors"][k]} - {"preset"}
    named = {name.replace("-", "_") for name in re.findall(r"`([\w.-]+)`", page)}
    assert differing <= named


def test_the_environment_of_the_page_can_be_trained(tmp_path, monkeypatch, capsys):
    """The page's own module, in the working directory, under the id that the page gives."""
    from self_imitation.cli.main import main

    module = code_of("docs/environments.md")[0]
    (tmp_path / "my_package.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    flags = ["--seeds", "1", "--envs", "4", "--rollout", "32", "--steps", "2000", "--log-every", "500"]
    flags += ["--ppo.num_minibatches", "4", "--ppo.update_epochs", "2", "--sil.batch_size", "32", "--sil.buffer_size", "500"]
    assert main(["train", "gym:my_package:MyEnv-v0", "--agent", "ppo+sil", *flags]) == 0
    assert "environments by gymnasium, in runs/gym-my-package-MyEnv-v0_ppo+sil_" in capsys.readouterr().out


def test_the_search_space_of_the_page_is_that_of_the_catalogue():
    from self_imitation.environments import catalogue

    page = (ROOT / "docs/environments.md").read_text()
    for name, values in list(catalogue.find("mujoco:Hopper").search.items())[:2]:
        assert f"'{name}': {values}" in page
