"""From arguments to settings: defaults, help, and one-line errors."""

import re
from dataclasses import dataclass

import pytest

from self_imitation import registry
from self_imitation.algorithm.a2c import A2C
from self_imitation.cli.main import COMMANDS, main
from self_imitation.cli.train import read_config
from self_imitation.environments import registry as environments
from self_imitation.settings import flatten, real, setting


def call(capsys, *arguments: object) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def help_page(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(["train", *arguments, "--help"])
    assert stopped.value.code == 0
    return capsys.readouterr().out


def test_default_is_a2c_sil_on_key_door_treasure_with_four_seeds():
    config = read_config([])
    assert (config.env, config.agent, config.seeds, config.seed) == ("key-door-treasure", "a2c+sil", 4, 0)
    assert config.preset == "authors"
    assert list(config.components) == ["a2c"]


def test_flags_override_preset_and_environment():
    flags = ["apple-key-door-treasure", "--preset", "paper", "--sil.updates", "7", "--sil.max-advantage", "2"]
    config = read_config(flags)
    assert config.env == "apple-key-door-treasure"
    assert (config.sil.updates, config.sil.max_advantage, config.sil.buffer_size) == (7, 2.0, 1000)
    assert read_config(["--sil.max_advantage", "None"]).sil.max_advantage is None
    assert read_config(["--network.hidden", "3", "5"]).network.hidden == (3, 5)
    assert read_config(["--seeds", "2", "apple-key-door-treasure"]).env == "apple-key-door-treasure"


def test_components_have_flags_of_their_own():
    config = read_config(["--agent", "ppo+rnd+sil", "--ppo.clip-coef", "0.3", "--rnd.coef", "2"])
    assert config.agent == "ppo+sil+rnd"
    assert list(config.components) == ["ppo", "rnd"]
    assert (config.components["ppo"].clip_coef, config.components["rnd"].coef) == (0.3, 2.0)
    assert config.components["ppo"].gamma == 0.95, "the environment's default"


@dataclass(frozen=True)
class OwnConfig:
    gamma: float = setting(0.9, real(0, 1))
    """Discount."""
    greed: float = setting(0.5, real(0))
    """Made up
    for this test."""


class OwnLearner(A2C):
    Config = OwnConfig


def test_a_registered_learner_has_flags_and_help(capsys, monkeypatch):
    monkeypatch.setattr(registry, "_learners", dict(registry.learners()))
    registry.register_learner("own", OwnLearner, "my own")
    assert read_config(["--agent", "own", "--own.greed", "2"]).components["own"].greed == 2.0
    page = help_page(capsys, "--agent", "own")
    assert re.search(r"--own\.greed FLOAT +Made up for this test\. \(default: 0\.5\)", page), "on one line"


@pytest.mark.parametrize("agent", ["a2c+sil", "ppo+rnd"])
def test_every_setting_of_the_agent_is_a_flag_with_its_default_and_meaning(capsys, agent):
    page = help_page(capsys, "--agent", agent)
    flat = flatten(read_config(["--agent", agent]))
    if "sil" not in agent:
        flat = {name: value for name, value in flat.items() if not name.startswith("sil.")}
    for name in flat.keys() - {"env", "env_kwargs", "wrappers"}:
        assert f"--{name.replace('_', '-')}" in page
    assert {"--env.KEY VALUE", "--wrapper MODULE:CLASS", "--config FILE"} <= set(re.findall(r"--[\w.]+ [\w:]+", page))
    assert page.count("(default:") == len(flat)  # wrappers have none, --config has one
    groups = re.findall(r"(\w+) options", page)
    parts = {"sil", *registry.components()}
    assert set(groups) & parts == set(agent.split("+"))
    assert "The optimiser of the on-policy updates" in page, "groups are described"


def test_help_shows_the_defaults_of_environment_and_preset(capsys):
    page = re.sub(r"[│\s]+", " ", help_page(capsys, "--preset", "paper"))
    assert "50000 on MuJoCo, 1000 in grid worlds). (default: 1000)" in page


@pytest.mark.parametrize("columns", [80, 120])
def test_help_fits_the_terminal(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert max(map(len, help_page(capsys).splitlines())) <= columns


@pytest.mark.parametrize(
    ("text", "steps"), [("1e6", 10**6), ("1_000_000", 10**6), ("2.5e3", 2500), ("1E3", 1000), ("20.0", 20), ("+7", 7)]
)
def test_integers_have_exponents_and_underscores(text, steps):
    assert read_config(["--steps", text]).steps == steps
    assert read_config(["--sil.max-pending-steps", text]).sil.max_pending_steps == steps
    assert read_config(["--network.hidden", "5", "1e1"]).network.hidden == (5, 10)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("1e-3", 1e-3),
        ("true", True),
        ("False", False),
        ("None", None),
        ("8x8", "8x8"),
        ('"3"', "3"),
        ("[1, 2]", [1, 2]),
        ("2020-01-01", "2020-01-01"),
        ("nan", "nan"),
        ("-2", -2),
        ("1\nx = 2", "1\nx = 2"),
        ("", ""),
    ],
)
def test_keyword_arguments_of_the_environment_are_flags(text, value):
    assert read_config(["CartPole-v1", "--env.some-thing", text]).env_kwargs == {"some_thing": value}
    config = read_config(["--env.x=3", "gym:CartPole-v1", f"--env.y={text}", "--steps", "7"])
    assert (config.env, config.env_kwargs, config.steps) == ("gym:CartPole-v1", {"x": 3, "y": value}, 7)


def test_wrappers_are_flags_in_their_order():
    assert read_config(["Taxi-v4", "--wrapper", "a.b:C", "--wrapper", "d:E"]).wrappers == ("a.b:C", "d:E")


@pytest.mark.parametrize(
    ("env", "agent", "shown"),
    [
        ("CartPole-v1", "ppo+sil", {"gym:CartPole-v1", "0.01", "256"}),
        ("mujoco:Hopper", "ppo+sil", {"2048", "linear"}),
        ("atari:freeway", "a2c+sil", {"atari:Freeway", "50000000", "sign"}),
    ],
)
def test_help_shows_the_defaults_of_the_named_environment(capsys, env, agent, shown):
    page = re.sub(r"[│\s]+", " ", help_page(capsys, env, "--agent", agent))
    assert shown <= set(re.findall(r"\(default: ([^)]*)\)", page))


def test_help_of_an_unknown_environment_is_an_error(capsys):
    status, _, err = call(capsys, "train", "nowhere", "--help")
    assert status == 2
    assert err.startswith("sil: env: 'nowhere' is unknown")


@pytest.mark.parametrize("agent", ["a2c+sil+cts", "ppo+sil+simhash", "vtrace+exp", "acper+sil", "ppo+rnd"])
def test_help_says_which_number_a_source_has_not_that_the_default_is_its(capsys, agent):
    """The default may come from elsewhere: "(paper: 512)" is true beside any default, "(paper, table 3)" is not."""
    page = re.sub(r"[│\s]+", " ", help_page(capsys, "gym:CartPole-v1", "--agent", agent))
    sources = r"paper|[\w-]+ paper|authors' code|IMPALA|OpenAI's baselines"
    assert not re.findall(rf"\((?:{sources})[^():]*\)\.? \(default: [\d.]+\)", page)


def test_main_help_names_every_command_and_the_version(capsys):
    status, out, _ = call(capsys, "--help")
    assert status == 0
    assert all(re.search(rf"^  {name} ", out, re.MULTILINE) for name in COMMANDS)
    assert call(capsys)[:2] == (0, out)
    assert call(capsys, "--version")[1].startswith("self-imitation ")


def test_list_has_a_line_for_every_environment_learner_and_bonus(capsys):
    _, out, _ = call(capsys, "list")
    names = [line.split()[0] for line in out.partition("Agents")[0].splitlines() if line.startswith("  ")]
    families = ("atari:GAME", "xland:ID", "gym:ID")
    assert names == [*environments.entries(), *families, *registry.learners(), *registry.bonuses()]
    assert out.endswith("  a2c, ppo+sil, a2c+sil+exp\n"), "how names are put together"


def test_list_names_all_games_and_those_of_the_papers_table(capsys, monkeypatch):
    *games, explanation = call(capsys, "list", "atari")[1].splitlines()
    assert len(games) == len(environments.atari_games()) > 100
    assert "atari:MontezumaRevenge *" in games
    assert sum(game.endswith(" *") for game in games) == 49
    assert explanation.startswith("* one of the paper's 49 games")
    monkeypatch.setattr(environments, "atari_games", dict)
    status, _, err = call(capsys, "list", "atari")
    assert (status, err) == (2, "sil: Atari games come with ale-py: pip install 'self-imitation[atari]'\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("trian", "command: 'trian' is unknown; did you mean 'train'?"),
        ("train key-dor", "env: 'key-dor' is unknown; did you mean 'key-door-treasure'?"),
        ("train --agent a3c", "agent: 'a3c' is unknown; did you mean 'a2c'?"),
        ("train --agent PPO", "agent: 'PPO' is unknown; did you mean 'ppo'?"),
        ("train --agent a2c+fun", "agent: 'a2c+fun' is unknown"),
        ("train --network.hidden wide", "--network.hidden: 'wide' is not allowed; allowed: None or integers"),
        ("train --sil.max-pending-steps much", "'much' is not allowed; allowed: None or an integer"),
        ("train --steps 0", "steps: 0 is not allowed; allowed: an integer >= 1"),
        ("train --steps -3", "steps: -3 is not allowed"),
        ("train --steps many", "--steps: 'many' is not an integer"),
        ("train --steps 1.5", "--steps: '1.5' is not an integer"),
        ("train --steps 1e-3", "--steps: '1e-3' is not an integer"),
        ("train --steps 1e999999999", "--steps: '1e999999999' is not an integer"),
        ("train --sil.max-pending-steps 0.5", "'0.5' is not allowed; allowed: None or an integer"),
        ("train --env.size", "--env.size: missing value"),
        ("train --env.size --steps 2000", "--env.size: missing value; write --env.size=VALUE if it begins with --"),
        ("train --env.size 3", "env_kwargs: {'size': 3} is not allowed; key-door-treasure takes neither keyword"),
        ("train CartPole-v1 --wrapper mine", "wrappers: ('mine',) is not allowed; allowed: MODULE:CLASS for each"),
        ("train CartPole-v1 --wrapper no_module:Mine", "wrapper: 'no_module:Mine' can't be imported; No module named"),
        ("train CartPole-v1 --env.size 3", "env.size: 'CartPole-v1' has no such keyword argument; allowed: sutton"),
        ("train --config=", "'' can't be read: Is a directory"),
        ("train --preset=", "preset: '' is unknown"),
        ("train --agent=", "agent: '' is unknown"),
        ("train --config .", "'.' can't be read: Is a directory"),
        ("train --config /dev/zero", "'/dev/zero' can't be read: Not a regular file"),
        ("train --config nowhere.toml", "no such file: 'nowhere.toml'"),
        ("train --preset nowhere.toml", "no such file: 'nowhere.toml'"),
        (
            "train python:x",
            "env: 'python:x' is made by Python code, which has to be passed from Python: train(env=...)",
        ),
        ("train --seeds 0", "seeds: 0 is not allowed"),
        ("train --sil.batch_size 100001", "allowed: at most sil.buffer_size = 100000"),
        ("train --sil.max_advantage x", "--sil.max-advantage: 'x' is not allowed; allowed: None or a number"),
        ("train --sil.keep none", "'none'"),
        ("train --preset mine", "'mine'"),
        ("train --sil.update 3", "unknown options: --sil.update, 3; did you mean --sil.updates?"),
        ("train --agent a2c --sil.updates 5", "sil.updates has no effect with agent 'a2c'"),
        ("train --exp.scale 2", "exp.scale has no effect with agent 'a2c+sil'"),
        ("train --ppo.clip-coef 0.3", "ppo.clip_coef has no effect with agent 'a2c+sil'"),
        ("train --agent ppo --ppo.gamma 2", "ppo.gamma: 2.0 is not allowed; allowed: a finite number >= 0 and <= 1"),
        ("train a b", "b"),
        ("train --num-envs 1000000000", "num_envs: 1000000000 is not allowed"),
        ("train --num-steps 99999999999", "num_steps: 99999999999 is not allowed"),
        ("train --network.hidden 9999999", "network.hidden: (9999999,) is not allowed"),
        ("train --steps", "--steps: missing value"),
        ("train atari:Freeway --num-envs 2000 --seeds 2", "2 seeds x 2000 = 4000 emulators; allowed: at most 1024"),
        ("resume", "missing argument RUN: Run directory"),
        ("resume nowhere", "no such run: 'nowhere'"),
        ("evaluate .", "'.' is not a run directory (no config.json)"),
        ("play nowhere", "no such run: 'nowhere'"),
        ("plot", "runs: none given"),
        ("plot nowhere", "no such run: 'nowhere'"),
        ("bench everything", "what: 'everything' is not allowed; allowed: 'all', 'replay', 'train', 'mujoco'"),
        ("bench replay --json no/where.json", "json: 'no/where.json' can't be written"),
        ("reproduce foo", "experiment: 'foo' is unknown; known: "),
        ("reproduce mujocco", "experiment: 'mujocco' is unknown; did you mean 'mujoco'?"),
        ("reproduce", "missing argument NAME|FILE.toml: An experiment of the paper"),
        ("reproduce grid-worlds --out /dev/null/x", "out: '/dev/null/x"),
        ("reproduce grid-worlds --runs=", "runs: '' is not allowed; allowed: a directory"),
        ("reproduce grid-worlds --seeds 0", "seeds: 0 is not allowed"),
    ],
)
def test_bad_input_is_one_clear_line_and_status_2(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    status, out, err = call(capsys, *arguments.split())
    assert (status, out) == (2, "")
    assert message in err
    assert err.startswith("sil: ")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [], "nothing written"


def test_without_a_checkout_bench_says_where_the_benchmarks_are(capsys, monkeypatch):
    from self_imitation.cli import main as command_line

    monkeypatch.setattr(command_line, "_is_checkout", lambda root: False)
    status, _, err = call(capsys, "bench")
    assert status == 2
    assert "benchmarks come with the source checkout" in err
