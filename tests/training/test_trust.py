"""Code that a run's environment names is imported only with the user's consent."""

import dataclasses
import json
import shutil
import sys

import pytest
from helpers import small_run

import self_imitation
from self_imitation.cli import terminal
from self_imitation.cli.main import main
from self_imitation.config import TrainConfig
from self_imitation.environments.gymnasium.modules import locate
from self_imitation.errors import UsageError
from self_imitation.training.trust import require_trust

EVIL = """
import pathlib
pathlib.Path(__file__).with_name("ran").touch()
import gymnasium
gymnasium.register("Foo-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=5)
"""


@pytest.fixture(autouse=True)
def unchanged_path(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in ("evil", "pack", "pack.evil"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Trained on CartPole, but its config names a module."""
    path = small_run(tmp_path_factory.mktemp("trust") / "run", "gym:CartPole-v1", steps=80, seeds=1, agent="a2c").path
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "env": "gym:evil:Foo-v0", "engine": "gymnasium"}))
    return path


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A module in the working directory; returns the file that it writes when it is imported."""
    (tmp_path / "evil.py").write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "ran"


@pytest.mark.parametrize("command", ["evaluate", "play", "resume"])
def test_without_a_terminal_nothing_is_imported(command, run, evil, capsys):
    assert main([command, str(run)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"sil: env: 'gym:evil:Foo-v0' of this run would import the module 'evil' ({evil.with_name('evil.py')}); "
        "allow it with --trust, or trust=True in Python"
    )
    assert not evil.exists()


@pytest.mark.parametrize("trust", [False, True])
def test_wrappers_are_imported_with_trust_only(run, evil, tmp_path, trust):
    path = tmp_path / "run"
    shutil.copytree(run, path)
    data = json.loads((path / "config.json").read_text())
    wrapped = {**data, "env": "gym:CartPole-v1", "wrappers": ["evil:Wrapper"]}
    (path / "config.json").write_text(json.dumps(wrapped))
    message = r"wrapper: 'evil:Wrapper' (is unknown|of this run would import the module 'evil' \()"
    with pytest.raises(UsageError, match=message):
        self_imitation.load(path, trust=trust).policy()
    assert evil.exists() == trust


def test_metrics_need_no_trust(run, evil):
    assert self_imitation.load(run).metrics()
    with pytest.raises(UsageError, match="would import the module 'evil'"):
        self_imitation.load(run).policy()
    assert not evil.exists()


def test_with_trust_it_is_imported(run, evil):
    with pytest.raises(UsageError, match="belongs to another run"):  # the checkpoint, which is CartPole's
        self_imitation.load(run, trust=True).policy()
    assert evil.exists()


@pytest.mark.parametrize(("answer", "allowed"), [("y\n", True), ("\n", False), ("", False)])
def test_a_terminal_is_asked(answer, allowed, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", FakeTerminal(answer))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert terminal.ask_to_import("module 'evil' (/home/evil.py)") == allowed
    assert "module 'evil' (/home/evil.py)" in capsys.readouterr().err


class FakeTerminal:
    def __init__(self, answer):
        self.answer = answer

    def isatty(self):
        return True

    def readline(self):
        return self.answer


def config(env):
    return dataclasses.replace(TrainConfig(), env=env)


def test_a_module_inside_the_run_directory_is_never_imported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path / "pack", tmp_path / "pack" / "run"):
        folder.mkdir()
        (folder / "evil.py").write_text(EVIL)
    for module in ("pack.run.evil", "pack.evil"):
        with pytest.raises(UsageError, match="names a module inside the run directory"):
            require_trust(config(f"gym:{module}:Foo-v0"), tmp_path / "pack", trust=True)
    monkeypatch.chdir(tmp_path / "pack")
    with pytest.raises(UsageError, match="names a module inside the run directory"):
        require_trust(config("gym:evil:Foo-v0"), tmp_path / "pack", trust=True)
    require_trust(config("gym:evil:Foo-v0"), tmp_path / "elsewhere", trust=True)
    wrapped = dataclasses.replace(TrainConfig(), env="gym:CartPole-v1", wrappers=("evil:Wrapper",))
    with pytest.raises(UsageError, match=r"^wrapper: 'evil:Wrapper' names a module inside the run directory"):
        require_trust(wrapped, tmp_path / "pack", trust=True)


@pytest.mark.parametrize("env", ["key-door-treasure", "gym:CartPole-v1", "atari:Pong", "gym:json:Foo-v0"])
def test_what_needs_no_trust(env, tmp_path):
    require_trust(config(env), tmp_path, trust=False)


def test_locating_a_module_runs_no_code(tmp_path, monkeypatch):
    (tmp_path / "pack").mkdir()
    for name in ("__init__", "evil"):
        (tmp_path / "pack" / f"{name}.py").write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    assert locate("pack.evil")[-1] == tmp_path / "pack" / "evil.py"
    assert locate("pack.nothing") == []
    assert not (tmp_path / "pack" / "ran").exists()


def test_other_environments_do_not_search_the_working_directory(tmp_path, monkeypatch):
    from self_imitation.environments.gymnasium.make import make_env

    monkeypatch.chdir(tmp_path)
    make_env("CartPole-v1")
    assert str(tmp_path) not in sys.path
