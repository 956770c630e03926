"""Runs on Atari games: parts and seeds, acting while learning, memory on the host, stops and faults."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import OrdersHere

from self_imitation.training import agents
from self_imitation import load
from self_imitation.cli.main import main
from self_imitation.config import resolve
from self_imitation.environments.gymnasium import make as engines
from self_imitation.errors import DeviceMemoryError, FaultyEnvironmentError, UsageError
from self_imitation.storage import checkpoint
from self_imitation.runs import host_program
from self_imitation.runs import meeting
from self_imitation.training import loop as training
from self_imitation.storage.trees import from_arrays, to_arrays
from self_imitation.runs.host_functions import Leaves, compiled_as_one_graph
from self_imitation.runs.host_program import HostProgram
from self_imitation.runs.program import Shapes
from self_imitation.runs.rollouts import EarlySight, news_of
from self_imitation.training.run import start
from self_imitation.training.loop import Silent
from self_imitation.validation import validate

SMALL = {"num_envs": 4, "sil.batch_size": 16, "sil.buffer_size": 500, "sil.learning_starts": 1, "sil.updates": 2}
ITERATIONS = 45
"""Random play loses a game of Breakout sooner."""


def config_of(seeds=1, **settings):
    changes = {"agent": "a2c+sil", "seeds": seeds, **SMALL, **{k.replace("__", "."): v for k, v in settings.items()}}
    return engines.settle(validate(resolve("atari:Breakout", "authors", changes)))


def trained(program, *cuts):
    """The arrays of its progress, after so many iterations each."""
    progress = program.begin()
    program.compile(progress)
    for iterations in cuts:
        progress = program.advance(progress, iterations)
    arrays = to_arrays(program.whole(progress))
    program.close()
    return arrays


def assert_same(one, other):
    for name in one:
        np.testing.assert_allclose(
            one[name].astype(float), other[name].astype(float), rtol=1e-3, atol=1e-5, err_msg=name
        )


@pytest.fixture(scope="module")
def together():
    """Three seeds, each with its environments in four parts."""
    return trained(HostProgram(config_of(3), parts=4), ITERATIONS)


@pytest.mark.parametrize("seed", [0, 2])
def test_seeds_together_and_in_parts_are_as_each_alone_and_whole(together, seed):
    assert together["state.memory.size"].all(), "all have something to imitate"
    alone = trained(HostProgram(config_of(seed=seed), parts=1), ITERATIONS)
    assert_same(alone, {name: array[seed : seed + 1] for name, array in together.items()})


def test_a_memory_on_the_host_makes_no_difference(together):
    on_host = trained(HostProgram(config_of(2, sil__memory="host"), parts=1), ITERATIONS)
    assert_same(on_host, {name: array[:2] for name, array in together.items()})


def test_what_waits_in_an_emulator_is_not_saved_and_the_rest_goes_on(together):
    assert not together["state.memory.recent.length"].any()
    program = HostProgram(config_of(3), parts=2)
    saved = from_arrays(together, program.shapes.all_seeds, "test")
    latest = np.full((3, host_program.LATEST), np.nan)
    latest[:, 0] = 1, 2, 3
    progress, lost = program.restore(saved, {"latest": latest}, 900)
    assert "unfinished episodes are dropped, fresh ones begin" in lost
    assert_same(to_arrays(program.whole(progress)), together)
    assert [program.own_metrics(seed)["return_latest"] for seed in range(3)] == [1, 2, 3]
    program.compile(progress)
    again = to_arrays(program.whole(program.advance(progress, 1)))
    assert not np.array_equal(
        again["state.train_state.params.policy_head.bias"], saved.state.train_state.params.policy_head.bias
    )
    program.close()


@pytest.mark.parametrize("fails", ["nothing", "compiling", "recording"])
def test_an_update_is_one_graph_where_that_works(fails):
    class Lowered:
        def compile(self, compiler_options=None):
            if compiler_options and fails == "compiling":
                raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: no such command")
            return partial(self.run, "as one" if compiler_options else "as usual")

        def run(self, how, acting, rest):
            calls.append(how)
            if how == "as one" and (fails == "recording" or calls[-2:] != ["as usual", "as one"]):
                raise jax.errors.JaxRuntimeError("UNKNOWN: CUDNN_STATUS_EXECUTION_FAILED")
            for leaf in [*acting, *rest]:
                leaf.delete()  # it is used up
            return Leaves([jnp.ones(2)], [jnp.ones(3)]), None

    calls, progress = [], Leaves([jnp.zeros(2)], [jnp.zeros(3)])
    compiled = compiled_as_one_graph(Lowered(), progress, "gpu")
    assert compiled.args == ("as one" if fails == "nothing" else "as usual",)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(progress)), "it is tried with copies"


class Refusing(OrdersHere):
    def fetch(self, stream, to, place, size):
        raise RuntimeError("not supported")


@pytest.mark.parametrize(
    ("orders", "parts", "overlap"), [(OrdersHere(), 1, "on"), (OrdersHere(), 2, "off"), (Refusing(), 2, "on")]
)
def test_acts_that_are_started_early_are_the_same_acts(monkeypatch, orders, parts, overlap):
    as_usual = trained(HostProgram(config_of(2, overlap=overlap), parts), 8)
    monkeypatch.setattr(host_program, "orders_for", lambda *_: orders)
    monkeypatch.setattr(meeting, "LONG", 0.3)
    program, early = HostProgram(config_of(2, overlap=overlap), parts), []
    put = meeting.Meeting.put
    monkeypatch.setattr(meeting.Meeting, "put", lambda *given: (early.append(1), put(*given))[1])
    assert_same(trained(program, 8), as_usual)
    assert program.late == ("not supported" if isinstance(orders, Refusing) else "")
    tries = 1 if isinstance(orders, Refusing) else EarlySight.TRIALS + 1 + 8 * program.config.num_steps
    assert len(early) == parts * tries


@pytest.mark.parametrize("held_up", ["starting to act", "stepping"])
def test_an_act_that_had_to_wait_for_long_is_done_again_and_its_part_starts_none_early_after_it(monkeypatch, held_up):
    as_usual = trained(HostProgram(config_of(2), parts=2), 8)
    monkeypatch.setattr(host_program, "orders_for", lambda *_: OrdersHere())
    monkeypatch.setattr(meeting, "PATIENCE", 0.2)
    program, early = HostProgram(config_of(2), parts=2), []
    prepare = EarlySight.prepare

    def slowly(sight, *given):
        prepare(sight, *given)
        if sight._started is not None:
            early.append(sight)
        while len(early) == 20 and held_up == "starting to act" and sight.meeting._waits():
            time.sleep(0.01)  # as a driver may that waits for the device
        if len(early) == 20 and held_up == "stepping" and sight._started is not None:
            time.sleep(1)

    monkeypatch.setattr(EarlySight, "prepare", slowly)
    assert_same(trained(program, 8), as_usual)
    assert program.late == "one had to wait for more than 0.2 seconds"
    assert len({id(sight) for sight in early[20:]}) == 1, "in the other part they are"


@pytest.mark.parametrize("overlap", ["on", "off"])
def test_how_a_run_is_cut_into_calls_makes_no_difference(overlap):
    whole = trained(HostProgram(config_of(overlap=overlap)), 12)
    assert_same(trained(HostProgram(config_of(overlap=overlap)), 1, 5, 6), whole)


@pytest.mark.parametrize(
    ("agent", "overlap", "behind"), [("a2c+sil", "on", 1), ("a2c+sil", "off", 0), ("ppo+sil", "on", 0)]
)
def test_with_overlap_the_policy_of_one_iteration_ago_acts_and_without_it_the_newest(
    monkeypatch, agent, overlap, behind
):
    config = config_of(agent=agent, overlap=overlap, rollout=4, sil__keep="all")
    program = HostProgram(config, parts=1)
    progress, acted, newest = program.begin(), [], []
    program.compile(progress)

    def noted(to, leaves_of, real):
        return lambda *given: (to.append(np.asarray(leaves_of(given)[-1])), real(*given))[1]

    functions = program.functions
    monkeypatch.setattr(functions, "act", noted(acted, lambda given: given[0], functions.act))
    monkeypatch.setattr(functions, "learn", noted(newest, lambda given: given[0].acting, functions.learn))
    iterations, acts = 4, program.config.num_steps
    for iterations_at_once in (1, 3):
        progress = program.advance(progress, iterations_at_once)
    program.close()
    assert len({policy.tobytes() for policy in newest}) == iterations, "each iteration changes it"
    for number, policy in enumerate(np.array(acted).reshape(iterations, acts, -1)):
        np.testing.assert_array_equal(policy, np.broadcast_to(newest[max(0, number - behind)], policy.shape))


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_fault_in_one_part_is_told_with_its_step_and_leaves_the_device_free(monkeypatch, parts, early):
    if early:
        monkeypatch.setattr(host_program, "orders_for", lambda *_: OrdersHere())
    program = HostProgram(config_of(), parts=parts)
    progress = program.begin()
    program.compile(progress)
    vector, calls = program.collector.parts[-1].vector, []

    def receive(real=vector.receive):
        calls.append(1)
        if len(calls) == 8:
            raise FaultyEnvironmentError("it broke")
        return real()

    monkeypatch.setattr(vector, "receive", receive)
    with pytest.raises(FaultyEnvironmentError, match=r"^environment atari:Breakout: it broke, at step 32$"):
        program.advance(progress, 5)
    assert len(calls) == 8
    for sight in program._sights:
        given = program._policy, program._keys()[0], news_of(program.collector, 0)
        again = threading.Thread(target=sight.try_out, args=given, daemon=True)
        again.start()
        again.join(60)
        assert not again.is_alive()
        assert bool(sight.late) == (not early)
    program.close()


def test_ctrl_c_while_an_act_is_started_stops_the_run_when_it_has_been(monkeypatch):
    monkeypatch.setattr(host_program, "orders_for", lambda *_: OrdersHere())
    program, started = HostProgram(config_of(), parts=1), []
    progress = program.begin()
    program.compile(progress)
    act = program._sights[0]._act

    def interrupted(*given):
        os.kill(os.getpid(), signal.SIGINT)
        started.append(act(*given))

    program._sights[0]._act = interrupted
    with pytest.raises(KeyboardInterrupt):
        program.advance(progress, 5)
    assert len(started) == 1
    program.close()


def test_a_policy_computed_in_bfloat16_is_nearly_that_in_float32():
    rough = trained(HostProgram(config_of(precision="bfloat16")), 3)
    exact = trained(HostProgram(config_of()), 3)
    for name in exact:
        if "params" in name:
            assert rough[name].dtype == np.float32
            np.testing.assert_allclose(rough[name], exact[name], atol=0.02, err_msg=name)
            assert not np.array_equal(rough[name], exact[name]) or "bias" in name


class Told(Silent):
    def __init__(self):
        self.messages = []

    def message(self, text):
        self.messages.append(text)


def test_who_waits_long_is_told_how_long(tmp_path, monkeypatch):
    told = Told()
    monkeypatch.setattr(training, "SOON", 1e-9)
    start(config_of(steps=60, out=str(tmp_path / "short")), told)
    assert not any("to the end" in text for text in told.messages)
    monkeypatch.setattr(training, "LONG", 0.0)
    start(config_of(steps=60, out=str(tmp_path / "long")), told)
    assert any("steps/s here: about" in text and text.endswith("to the end") for text in told.messages)
    assert training._in_words(119.6) == "120 seconds"
    assert training._in_words(150.0) == "2 minutes"
    assert training._in_words(3600 * 50.0) == "2 days"


def test_what_does_not_fit_is_told_with_the_settings_that_make_it_smaller(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**18, 0, 10**18))
    huge = config_of(sil__capacity=10**8, out=str(tmp_path / "run"))  # 700 GB
    lower = r"lower seeds \(now 1\), sil.buffer_size \(now 100,000,000\) or sil.batch_size \(now 16\)"
    with pytest.raises(DeviceMemoryError, match=rf"on the host: \d+ GB needed, \d+ GB there; {lower}"):
        start(huge, Silent())
    assert not (tmp_path / "run").exists()

    def begin(_):
        """As XLA tells of it. A CPU that really comes to it may leave arrays of which nobody hears any more."""
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 705600000000 bytes.")

    monkeypatch.setattr(training.Training, "_refuse_what_the_host_cannot_hold", lambda _: None)
    monkeypatch.setattr(HostProgram, "begin", begin)
    with pytest.raises(DeviceMemoryError, match=rf"out of memory on cpu, .*; {lower}; training stopped"):
        start(huge, Silent())
    assert not (tmp_path / "run").exists()


FLAGS = ["--envs", "4", "--sil.batch_size", "16", "--sil.buffer_size", "500", "--sil.updates", "2", "--log-every", "100"]


def test_a_killed_run_goes_on(tmp_path, capsys):
    run = tmp_path / "run"
    command = [sys.executable, "-m", "self_imitation", "train", "atari:Breakout", "--steps", "100000", *FLAGS]
    process = subprocess.Popen([*command, "--checkpoint-seconds", "1", "--out", str(run)], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while max(checkpoint.steps(run / "checkpoints"), default=0) == 0:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = max(checkpoint.steps(run / "checkpoints"))
    assert main(["resume", str(run), "--steps", str(done + 200)]) == 0
    said = capsys.readouterr().out
    assert "engine 'ale': unfinished episodes are dropped, fresh ones begin" in said
    steps = [int(row["step"]) for row in load(run).metrics()]
    assert steps == sorted(set(steps))
    assert steps[-1] == done + 200


def test_a_full_disk_while_saving_keeps_the_last_checkpoint_and_trains_on(tmp_path, monkeypatch):
    told, real = Told(), checkpoint.save

    def full(directory, step, *rest):
        if 0 < step < 80:
            raise OSError(28, "No space left on device")
        return real(directory, step, *rest)

    monkeypatch.setattr(checkpoint, "save", full)
    run, finished = start(config_of(steps=80, checkpoint_seconds=0.0, out=str(tmp_path / "run")), told)
    assert finished
    assert any(" not saved: " in text and "no space left" in text for text in told.messages)
    assert max(checkpoint.steps(run.directory.checkpoints)) == 80


def test_a_run_is_evaluated_and_told_beside_a_human(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", "atari:Breakout", "--steps", "40", *FLAGS, "--out", str(run)]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(run), "--episodes", "2"]) == 0
    assert "of a human" in capsys.readouterr().out
    policy, frames = load(run).policy(0), np.zeros((4, 84, 84), np.uint8)
    assert policy.act(frames).shape == ()
    assert policy.act(frames[None][:0]).shape == (0,)
    for wrong in (frames / 255, frames.astype(int) - 1, frames.astype(int) + 256):
        with pytest.raises(UsageError, match=r"observation: .* is not allowed; allowed: whole numbers from 0 to 255"):
            policy.act(wrong)


def test_games_of_one_seed_are_evaluated_after_those_of_another(tmp_path, monkeypatch):
    run, _ = start(config_of(2, steps=40, out=str(tmp_path / "run")), Silent())
    made, heard = [], []
    make = engines.make_vector
    monkeypatch.setattr(engines, "make_vector", lambda *given: (made.append(given[-1]), make(*given))[1])
    result = run.evaluate(3, listener=lambda *how_many: heard.append(how_many))
    assert [len(numbers) for numbers in made] == [3, 3]
    assert not set(made[0]) & set(made[1])
    assert heard == sorted(heard)
    assert heard[-1] == (6, 6)
    assert result.lengths.shape == (2, 3)
    assert (result.lengths > 100).all(), "whole ones"
    assert len(np.unique(result.lengths)) > 2


def test_the_memory_for_frames_is_no_larger_than_its_frames():
    """10^5 finished steps, and room for as many of unfinished games."""
    config = engines.settle(validate(resolve("atari:Breakout", "authors")))
    memory = Shapes(config, agents.build(config)).one_seed.state.memory
    waiting = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(memory.recent))
    whole = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(memory))
    assert memory.capacity == 100_000
    assert whole - waiting <= 0.75e9
    assert waiting <= 0.75e9


def test_bench_tells_the_emulators_rate_and_where_the_time_goes(capsys, monkeypatch, tmp_path):
    from self_imitation.benchmarks import atari

    monkeypatch.setattr(atari, "SECONDS", 0.1)
    monkeypatch.setattr(atari, "ROUNDS", 3)
    monkeypatch.setattr(atari, "config", lambda seeds: config_of(seeds, rollout=2))
    file = tmp_path / "figures.json"
    assert main(["bench", "atari", "--json", str(file)]) == 0
    said = capsys.readouterr().out
    for words in (
        " emulators alone ",
        "1 run  in training",
        "% of the emulators alone, by turns;",
        "in 3 rounds",
        "waiting for emulators",
        "not all acts are started before emulators have stepped: cpu can't wait for them",
        "eight runs at once are left out",
    ):
        assert words in said
    figures = json.loads(file.read_text())["atari"]
    for rates in (figures["runs_1"]["emulators"], figures["runs_1"]["training"]):
        assert len(rates) == 3
        assert min(rates) > 0
    assert set(figures["alone"]) >= {"one update of self-imitation", "A2C and remembering"}


def test_bench_measures_updates_from_a_full_memory():
    from self_imitation.benchmarks import atari

    program = HostProgram(config_of(2), parts=1)
    progress = atari.begin_with_full_memory(program)
    program.compile(progress)
    sums = program.tally(program.advance(progress, 3)).sums
    program.close()
    np.testing.assert_array_equal(sums["memory_size"], 3 * program.config.sil.buffer_size)
    np.testing.assert_allclose(sums["sil_imitated"], 3, err_msg="all that is drawn is imitated")


def test_a_memory_of_fewer_steps_than_a_stack_has_frames_imitates_nothing_and_stays_finite(tmp_path):
    tiny = {"sil.buffer_size": 3, "sil.batch_size": 3, "sil.learning_starts": 0, "sil.keep": "all", "steps": 900}
    _, finished = start(config_of(**tiny, out=str(tmp_path / "run")), Silent())
    assert finished


def test_who_asks_for_a_game_of_gymnasium_is_told_its_name_here():
    command = [sys.executable, "-m", "self_imitation", "train", "gym:ALE/Pong-v5", "--steps", "10"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert "Atari games go by atari:GAME here, as in atari:Pong" in told.stderr


def test_a_game_by_another_spelling_is_the_same_game(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", "atari:break-out", "--steps", "20", *FLAGS, "--out", str(run)]) == 0
    assert load(run).config.env == "atari:Breakout"
    assert main(["evaluate", str(run), "--episodes", "1"]) == 0
    assert "of a human" in capsys.readouterr().out
