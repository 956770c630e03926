"""Names of metrics in TensorBoard and W&B: the columns of metrics.csv, in groups."""

from self_imitation import registry

RETURNS, EPISODES, LOSSES, LEARNER, SIL, TIME = "returns", "episodes", "losses", "learner", "sil", "time"

KNOWN = {
    "episodes": f"{EPISODES}/count",
    "return_mean": f"{RETURNS}/mean",
    "return_best": f"{RETURNS}/best",
    "return_latest": f"{RETURNS}/latest",
    "length_mean": f"{EPISODES}/length_mean",
    "memory_size": f"{SIL}/memory_size",
    "bonus": "exp/bonus",
    "steps_per_second": f"{TIME}/steps_per_second",
    "seconds": f"{TIME}/seconds",
    "eval_seconds": f"{TIME}/eval_seconds",
}


def tag(column: str) -> str:
    """`returns/mean` for `return_mean`, `sil/imitated` for `sil_imitated`.

    What a component measures is in its own group; the learner's losses are in `losses`, all else of it in `learner`.
    """
    if column in KNOWN:
        return KNOWN[column]
    group, _, own = column.partition("_")
    if own and group in (SIL, "eval", "replay", *registry.bonuses()):
        return f"{group}/{own}"
    return f"{LOSSES if column.endswith('loss') else LEARNER}/{column}"
