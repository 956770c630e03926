"""Evaluation while a run trains: it changes nothing else, keeps the best policies, and survives kills."""

import io
import json
import math
import shutil
from functools import cache

import jax
import numpy as np
import pytest
from helpers import Recorder, assert_same_checkpoint, interrupt_after, rows, small_config, small_run

import self_imitation
from self_imitation.cli.progress import Lines
from self_imitation.config import TrainConfig, override, refuse_unused, resolve, validate
from self_imitation.errors import Interrupted, UsageError
from self_imitation.storage import checkpoint
from self_imitation.storage.metrics_file import EVALUATION
from self_imitation.storage.run_directory import RunDirectory
from self_imitation.training import early_stopping, evaluation
from self_imitation.training.evaluation import Evaluation, Evaluator
from self_imitation.training.run import continue_run, start

GRID = {"agent": "a2c", "log_every": 100, "eval_every": 200, "eval_episodes": 3, "steps": 500}
CARTPOLE = {"env": "gym:CartPole-v1", "engine": "gymnasium", **GRID}
ENVPOOL = {**CARTPOLE, "engine": "envpool", "workers": 1}
MUJOCO = {"env": "mujoco:Hopper", **GRID, "engine": "gymnasium", "num_envs": 1, "num_steps": 10, "steps": 300}
KINDS = {"grid": GRID, "cartpole": CARTPOLE, "envpool": ENVPOOL, "mujoco": MUJOCO}


def without(settings, *names):
    return {name: value for name, value in settings.items() if name not in names}


def best_of(run):
    """Steps and means, from the file."""
    (step,) = checkpoint.steps(run.directory.best)
    counters = json.loads((run.directory.best / str(step) / "meta.json").read_text())["counters"]
    return list(zip(counters["steps"], counters["return_means"], strict=True))


def delete_checkpoints_after(run, last):
    for step in checkpoint.steps(run.directory.checkpoints):
        if step > last:
            shutil.rmtree(run.path / "checkpoints" / str(step))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Runs with evaluation, by kind. No test changes them."""
    folder = tmp_path_factory.mktemp("whole")
    return cache(lambda kind: small_run(folder / kind, **KINDS[kind]))


@pytest.fixture
def scripted(monkeypatch):
    """Evaluations with mean returns that a test chooses, one list [seeds] after another."""

    def use(*means):
        left = iter(means)

        def evaluate(evaluator, policies, key, progress=None, stop=lambda: False):
            returns = np.array(next(left), float)[:, None] + [[-1.0, 1.0]]
            return Evaluation((0, 1), returns, np.full(returns.shape, 7))

        monkeypatch.setattr(Evaluator, "evaluate", evaluate)

    return use


@pytest.mark.parametrize("kind", ["grid", "cartpole"])
def test_a_run_with_evaluation_has_the_same_rows_and_checkpoints_otherwise(kind, whole, tmp_path):
    one = whole(kind)
    plain = small_run(tmp_path / "plain", **without(KINDS[kind], "eval_every", "eval_episodes"))
    assert [without(row, *EVALUATION) for row in rows(one.path)] == rows(plain.path)
    assert_same_checkpoint(one.path, plain.path, 500)
    assert not (plain.path / "best").exists()


@pytest.mark.parametrize("kind", ["grid", "cartpole", "envpool"])
def test_rows_with_an_evaluation_are_those_of_every_so_many_steps_and_the_last(kind, whole):
    table = whole(kind).metrics()
    evaluated = {int(row["step"]) for row in table if math.isfinite(row["eval_return_mean"])}
    assert evaluated == {200, 400, 500}
    for row in table:
        assert all(math.isfinite(row[name]) == (row["step"] in evaluated) for name in EVALUATION)
        assert not row["eval_return_mean"] > row["eval_return_best"]
        if kind != "grid" and row["step"] in evaluated:
            assert row["eval_return_mean"] == row["eval_length_mean"]


def test_the_numbers_are_those_of_fresh_episodes_with_the_policy_of_that_step(whole):
    run = whole("cartpole")
    last = [row["eval_return_mean"] for row in run.metrics() if row["step"] == 500]
    result = run.evaluate(3, key=500)
    np.testing.assert_allclose(result.returns.mean(axis=1), last, rtol=1e-6)


def test_the_best_policy_of_each_seed_is_kept(tmp_path, scripted, monkeypatch):
    evaluate, given = Evaluator.evaluate, []
    scripted([1, 5], [3, 5], [2, 4])
    run = small_run(tmp_path / "run", **CARTPOLE, checkpoint_seconds=0.0, checkpoints_kept=100)
    assert best_of(run) == [(400, 3.0), (200, 5.0)]
    assert {path.name for path in (run.directory.best / "400").iterdir()} == {"policy.safetensors", "meta.json"}
    assert run.best_seed(best=True) == 1

    def look(evaluator, policies, *arguments):
        given.append(policies)
        return evaluate(evaluator, policies, *arguments)

    monkeypatch.setattr(Evaluator, "evaluate", look)
    run.evaluate(2)
    run.evaluate(2, best=True)
    played, policy = run.play(best=True), run.policy(best=True)
    latest, kept = ([np.asarray(leaf) for leaf in jax.tree.leaves(policies)] for policies in given)
    for last, index in ((400, 0), (200, 1)):
        delete_checkpoints_after(run, last)
        then = self_imitation.load(run.path)
        expected = jax.tree.leaves(then._policies)
        for one, other in zip(kept, expected, strict=True):
            np.testing.assert_array_equal(one[index], other[index])
        assert any(not np.array_equal(one[index], other[index]) for one, other in zip(latest, kept, strict=True))
    np.testing.assert_array_equal(then.play(1).actions, played.actions)
    seen = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    np.testing.assert_array_equal(then.policy(1).act(seen), policy.act(seen))


def test_a_run_without_evaluation_has_no_best_policy(tmp_path):
    RunDirectory(tmp_path).write_config(small_config(tmp_path, agent="a2c"))
    run = self_imitation.load(tmp_path)
    with pytest.raises(UsageError, match=r"^best: .* has no best policies: it was trained without --eval-every"):
        run.policy(best=True)


@pytest.mark.parametrize("kind", ["grid", pytest.param("mujoco", marks=pytest.mark.slow)])
def test_an_interrupted_run_ends_with_the_same_evaluations_and_best_policies(kind, whole, tmp_path):
    one = whole(kind)
    with pytest.MonkeyPatch.context() as patch:
        config = small_config(tmp_path / "run", **KINDS[kind])
        wanted = config.iterations_per_evaluation + 2
        run, finished = start(config, [], interrupt_after(config.iterations_per_row, patch))
        assert not finished
        run, finished = continue_run(run.path, None, [], interrupt_after(wanted, patch))
    run, finished = continue_run(run.path, None)
    assert finished
    assert rows(run.path) == rows(one.path)
    assert_same_checkpoint(one.path, run.path, one.config.total_steps)
    assert best_of(run) == best_of(one)
    np.testing.assert_array_equal(run.evaluate(3, best=True).returns, one.evaluate(3, best=True).returns)


def test_better_policies_of_a_part_that_was_cut_off_are_kept(tmp_path, scripted):
    """A kill after the evaluation at step 400: the run goes on from an earlier checkpoint."""
    scripted([1, 1], [3, 3], [2, 2])
    run = small_run(tmp_path / "run", **GRID, checkpoint_seconds=0.0, checkpoints_kept=100)
    delete_checkpoints_after(run, 300)
    scripted([2, 4], [1, 1])
    continue_run(run.path, None)
    assert best_of(run) == [(400, 3.0), (400, 4.0)]
    assert [row["eval_return_mean"] for row in run.metrics() if row["step"] == 400] == [2, 4]


def test_damaged_best_policies_are_reported_and_chosen_anew(whole, tmp_path):
    copy = self_imitation.load(shutil.copytree(whole("grid").path, tmp_path / "copy"))
    (meta,) = copy.directory.best.glob("*/meta.json")
    content = json.loads(meta.read_text())
    content["counters"]["steps"] = [10**9, 200]
    content.pop("checksum")
    meta.write_text(json.dumps({**content, "checksum": checkpoint._checksum_of(content)}))
    recorder = Recorder()
    continue_run(copy.path, 600, [recorder])
    assert any("is damaged (meta.json: not the counters of best policies)" in text for text in recorder.messages)
    assert best_of(copy)[0][0] == 600


def test_a_run_that_is_stopped_while_it_evaluates_evaluates_when_it_resumes(whole, tmp_path, monkeypatch):
    one, stopped = whole("grid"), []

    def interrupt(*arguments, **named):
        stopped.append(True)
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "evaluate", interrupt)
        run, finished = start(small_config(tmp_path / "run", **GRID), [], lambda: bool(stopped))
    assert (finished, checkpoint.steps(run.directory.checkpoints)[-1]) == (False, 200)
    assert {row["step"] for row in run.metrics()} == {100}
    continue_run(run.path, None)
    assert rows(run.path) == rows(one.path)
    assert best_of(run) == best_of(one)


def test_endless_episodes_are_reported_and_training_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "MAX_STEPS", 200)
    recorder = Recorder()
    config = small_config(tmp_path / "run", "gym:gymnasium_probes:Endless-v0", **{**GRID, "steps": 200})
    run, finished = start(config, [recorder])
    assert finished
    says = "evaluation at step 200 failed, training goes on: env: 'gym:gymnasium_probes:Endless-v0' can't be evaluated"
    assert any(text.startswith(says) for text in recorder.messages)
    assert math.isnan(run.metrics()[-1]["eval_return_mean"])


def test_a_run_stops_when_the_mean_over_seeds_is_reached(tmp_path, scripted):
    scripted([1, 2], [3, 5])
    recorder = Recorder()
    config = small_config(tmp_path / "run", **GRID, stop_at=4.0)
    run, finished = start(config, [recorder])
    assert finished
    assert run.metrics()[-1]["step"] == 400
    summary = json.loads(run.directory.summary.read_text())
    reason = "the evaluation at step 400 has a mean return of 4 (stop_at is 4)"
    assert (summary["finished"], summary["stopped_early"], summary["step"]) == (True, reason, 400)
    says = f"Stopped early at step 400: {reason}. Go on with: sil resume {run.path} --stop-at None"
    assert recorder.messages[-1] == says
    again, shown = Recorder(), io.StringIO()
    assert continue_run(run.path, None, [again, Lines(shown)])[1]
    assert again.messages == shown.getvalue().splitlines() == [says]
    assert run.metrics()[-1]["step"] == 400
    scripted([9, 9])
    self_imitation.resume(run.path, settings={"stop_at": None})
    assert run.metrics()[-1]["step"] == 500
    assert "stopped_early" not in json.loads(run.directory.summary.read_text())


def test_a_run_stops_after_evaluations_without_a_better_one(tmp_path, scripted):
    scripted([1, 1], [2, 2], [1, 3], [0, 0])
    run = small_run(tmp_path / "run", **{**GRID, "steps": 5000}, patience=2)
    assert run.metrics()[-1]["step"] == 800
    assert best_of(run) == [(400, 2.0), (600, 3.0)]


def evaluated(*means):
    return [{"seed": 0.0, "step": 100.0 * i, "eval_return_mean": mean} for i, mean in enumerate(means, 1)]


@pytest.mark.parametrize(
    ("means", "stops"),
    [((), False), ((1, 1), False), ((1, 1, 1), True), ((1, 0, 2), False), ((2, 0, math.nan, 2), True)],
)
def test_patience_counts_evaluations_since_the_first_best_one(means, stops):
    assert bool(early_stopping.reason(TrainConfig(patience=2), evaluated(*means))) is stops


def test_ties_between_seeds_go_to_the_better_policy(tmp_path):
    RunDirectory(tmp_path).write_config(small_config(tmp_path, seeds=3))
    run = self_imitation.load(tmp_path)

    def table(*cells):
        names = "seed,step,episodes,return_mean,return_best,length_mean,eval_return_mean,steps_per_second,seconds"
        lines = [names, *(f"{seed},20,3,{own},1,1" for seed, own in enumerate(cells))]
        (run.path / "metrics.csv").write_text("\n".join(lines) + "\n")
        return run.best_seed()

    assert table("1,2,9,1", "2,2,9,0", "1,9,9,9") == 1, "mean return"
    assert table("1,9,5,1", "1,2,9,3", "1,9,9,2") == 1, "evaluation"
    assert table("1,2,5,", "1,9,9,", "1,3,9,") == 1, "best return"
    assert table("1,2,9,", "1,2,7,", "1,2,8,") == 1, "shorter episodes"
    assert table("1,2,9,", "1,2,9,", "1,2,9,") == 0, "the first seed"
    assert table(",,,", "1,2,9,", ",,,9") == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"eval_every": 10}, "eval_every: 10 is not allowed; allowed: at least log_every = 20000"),
        ({"eval_every": 0}, "eval_every: 0 is not allowed; allowed: an integer >= 1"),
        ({"stop_at": 3.0}, "stop_at: 3.0 is not allowed; it has no effect with eval_every = None"),
        ({"patience": 3}, "patience: 3 is not allowed; it has no effect with eval_every = None"),
        ({"eval_every": 20_000, "stop_at": math.nan}, "stop_at: nan is not allowed; allowed: a finite number, or None"),
        ({"wandb_project": "x"}, "wandb_project: 'x' is not allowed; it has no effect with wandb = False"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    defaults = resolve("key-door-treasure", "authors")
    with pytest.raises(UsageError, match=message):
        refuse_unused(validate(override(defaults, settings)), defaults)


def test_only_some_settings_can_change(whole):
    with pytest.raises(UsageError, match=r"eval_every: 300 is not allowed; the run has .*: the columns of its metrics"):
        self_imitation.resume(whole("grid").path, settings={"eval_every": 300})
