"""A callback that follows a run and stops it when it is good enough: python examples/early_stopping.py"""

import argparse

import self_imitation


class StopAt(self_imitation.Callback):
    """Stops when the evaluations of every seed reach a mean return."""

    def __init__(self, goal: float):
        self.goal = goal

    def evaluated(self, context, evaluation):
        worst = evaluation.returns.mean(axis=1).min()
        print(f"step {context.step:,}: {worst:.2f} by the worst seed, {context.steps_per_second:,.0f} steps/s")
        if worst >= self.goal:
            context.stop()

    def ended(self, context):
        print(f"ended at step {context.step:,} of {context.total_steps:,}")


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=1_000_000, help="environment steps of each seed, at most")
steps = parser.parse_args().steps
settings = {"eval_every": steps // 20, "log_every": steps // 20}
run = self_imitation.train(
    "key-door-treasure", "a2c+sil+exp", steps=steps, seeds=2, settings=settings, callbacks=[StopAt(6.0)]
)
print(f"continue with: sil resume {run.path}")
