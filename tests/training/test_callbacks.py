"""Callbacks: when they are called, what they see, and that nothing is lost when one fails."""

import json
import os
import signal

import numpy as np
import pytest
from helpers import assert_same_checkpoint, rows, small_config, small_run

import self_imitation
from self_imitation import Callback
from self_imitation.errors import NonFiniteError, UsageError
from self_imitation.storage import checkpoint
from self_imitation.training import interrupts
from self_imitation.training.run import continue_run, start
from self_imitation.training.trainer import Trainer

TINY = {"agent": "a2c", "log_every": 100, "steps": 300, "eval_every": 200, "eval_episodes": 2}


class Everything(Callback):
    """Notes each call."""

    def __init__(self):
        self.calls, self.messages, self.policies, self.rows = [], [], [], []

    def started(self, context):
        self.calls.append(("started", context.step))

    def advanced(self, context):
        self.advanced_to = context.step

    def logged(self, context, rows):
        self.calls.append(("logged", context.step))
        self.rows += rows
        assert context.metrics()[-len(rows) :] == list(rows)

    def evaluated(self, context, evaluation):
        self.calls.append(("evaluated", context.step))
        assert context.evaluation is evaluation
        np.testing.assert_array_equal(context.evaluate(2, key=context.step).returns, evaluation.returns)
        self.policies.append(context.policy(1))

    def saved(self, context, checkpoint):
        self.calls.append(("saved", int(checkpoint.name)))

    def message(self, text):
        self.messages.append(text)

    def ended(self, context):
        self.calls.append(("ended", context.step))
        self.finished, self.error = context.finished, context.error


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    callback = Everything()
    run, _ = start(small_config(tmp_path_factory.mktemp("run") / "run", **TINY), [callback])
    return run, callback


def test_callbacks_are_called_at_each_moment(observed):
    run, callback = observed
    assert callback.calls == [
        ("started", 0),
        ("saved", 0),
        ("logged", 100),
        ("logged", 200),
        ("evaluated", 200),
        ("logged", 300),
        ("evaluated", 300),
        ("saved", 300),
        ("ended", 300),
    ]
    assert (callback.advanced_to, callback.finished, callback.error) == (300, True, None)
    assert [row["step"] for row in callback.rows] == [row["step"] for row in run.metrics()]


def test_callbacks_do_not_change_the_training(observed, tmp_path):
    run, _ = observed
    plain = small_run(tmp_path / "plain", **TINY)
    assert rows(plain.path) == rows(run.path)
    assert_same_checkpoint(plain.path, run.path, 300)


def test_policies_that_a_callback_read_do_not_change_later(observed):
    run, callback = observed
    seen = np.random.default_rng(0).integers(0, 5, (40, 5))
    first, last = (policy.act(seen) for policy in callback.policies)
    np.testing.assert_array_equal(last, run.policy(1).act(seen))
    np.testing.assert_array_equal(last, self_imitation.load(run.path).policy(1).act(seen))
    assert first.shape == last.shape


def test_functions_are_called_after_each_row_and_may_stop_the_run(tmp_path):
    seen = []

    def stop_at_200(context):
        seen.append(context.step)
        if context.step >= 200:
            context.stop()

    config = small_config(tmp_path / "run", **TINY)
    run, finished = start(config, [stop_at_200, lambda context: seen.append(len(context.metrics()))])
    assert (finished, seen) == (False, [100, 2, 200, 4])
    assert checkpoint.steps(run.directory.checkpoints)[-1] == 200
    assert json.loads(run.directory.summary.read_text())["finished"] is False
    again = []
    resumed = self_imitation.resume(run.path, callbacks=[lambda context: again.append(len(context.metrics()))])
    assert (again, resumed.metrics()[-1]["step"]) == ([6], 300)


@pytest.mark.parametrize(
    ("moment", "error", "last"),
    [
        ("started", ZeroDivisionError("oh"), 0),
        ("advanced", KeyboardInterrupt(), None),
        ("logged", KeyboardInterrupt(), 100),
        ("evaluated", ZeroDivisionError("oh"), 100),
        ("saved", OSError(28, "full"), 0),
        ("message", OSError(28, "full"), None),
        ("ended", SystemExit(3), 200),
    ],
)
def test_the_run_is_saved_before_an_exception_goes_on(moment, error, last, tmp_path):
    """Whatever is raised, and at whatever moment."""

    class Fails(Callback):
        pass

    def fail(*_):
        raise error

    setattr(Fails, moment, fail)
    other = Everything()
    config = small_config(tmp_path / "run", **{**TINY, "eval_every": 100, "steps": 200})
    with pytest.raises(type(error)) as caught:
        start(config, [Fails(), other])
    assert caught.value is error
    reported = [text for text in other.messages if text.startswith(f"Fails.{moment} raised {type(error).__name__}")]
    assert len(reported) == 1
    assert other.calls[-1][0] == "ended"
    saved = checkpoint.steps(tmp_path / "run" / "checkpoints")[-1]
    assert saved == (saved if last is None else last)
    if moment == "logged":
        _, finished = continue_run(tmp_path / "run", None)
        assert finished
        assert {row["step"] for row in rows(tmp_path / "run")} == {"100", "200"}


def test_callbacks_hear_of_a_failure(tmp_path):
    callback = Everything()
    with pytest.raises(NonFiniteError):
        start(small_config(tmp_path / "run", agent="a2c", **{"optimiser.learning_rate": 1e38}), [callback])
    assert isinstance(callback.error, NonFiniteError)
    assert not callback.finished


def test_the_policy_can_not_be_read_while_networks_are_updated(tmp_path, monkeypatch):
    class Early(Callback):
        said = ""

        def advanced(self, context):
            if context.updating:
                with pytest.raises(UsageError) as error:
                    context.policy()
                self.said = str(error.value)

    def run_and_report(trainer, iterations, stop, advanced):
        done = run(trainer, iterations, stop, advanced)
        advanced(done)  # as a longer run does a few times per second
        return done

    early, run = Early(), Trainer.run
    monkeypatch.setattr(Trainer, "run", run_and_report)
    start(small_config(tmp_path / "run", agent="a2c", steps=100, log_every=100), [early, _ask_in_vain])
    assert early.said == "policy: networks are being updated; use it in logged, evaluated or saved"


def _ask_in_vain(context):
    with pytest.raises(UsageError, match="seed: 7 is not allowed; this run has seeds 0 to 1"):
        context.policy(7)
    with pytest.raises(UsageError, match="episodes: 0 is not allowed; allowed: an integer >= 1"):
        context.evaluate(0)


def test_ctrl_c_in_a_script_saves_before_it_raises(tmp_path):
    settings = {"num_envs": 4, "log_every": 100}

    def press(context):
        if len(context.metrics()) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        self_imitation.train(
            agent="a2c", steps=300, seeds=1, out=tmp_path / "run", settings=settings, callbacks=[press]
        )
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert checkpoint.steps(tmp_path / "run" / "checkpoints")[-1] == 100
    assert self_imitation.resume(tmp_path / "run", callbacks=[press]).metrics()[-1]["step"] == 300


def test_a_second_ctrl_c_raises_immediately():
    seen = []

    def press_twice():
        with interrupts.deferred() as pressed:
            for _ in range(3):
                seen.append(pressed())
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        press_twice()
    assert seen == [False, True]


def test_wandb_needs_its_package(tmp_path, monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        UsageError, match=r"^wandb: the package is not installed: pip install 'self-imitation\[wandb\]'"
    ):
        start(small_config(tmp_path / "run", wandb=True))
    assert not (tmp_path / "run").exists()


SHORT = {"num_envs": 16, "num_steps": 5, "log_every": 80, "network.hidden": (8,)}


def test_a_single_callback_needs_no_list(tmp_path):
    seen = []
    self_imitation.train(
        "key-door-treasure", "a2c", steps=160, seeds=1, out=tmp_path / "run", callbacks=seen.append, settings=SHORT
    )
    assert len(seen) == 2


def test_messages_are_logged(tmp_path, caplog):
    settings = {**SHORT, "num_steps": 4}
    self_imitation.train("key-door-treasure", "a2c", steps=160, seeds=1, out=tmp_path / "run", settings=settings)
    assert "no episode has ended yet: returns are unknown" in caplog.text
