"""The flags of commands that use a Ray cluster."""

import dataclasses
from dataclasses import dataclass

from self_imitation.cluster.connect import ADDRESSES, Resources
from self_imitation.errors import UsageError
from self_imitation.settings import setting

PLACE = (lambda v: v is None or (v != "" and not v.endswith("://")), "a directory, or a URL such as s3://bucket/path")
ADDRESS = (lambda v: v is None or v != "", ADDRESSES)


@dataclass(frozen=True, kw_only=True)
class ClusterArguments(Resources):
    """Where the tasks of a cluster run, and where they store their results."""

    address: str | None = setting(None, ADDRESS)
    """Of a Ray cluster: HOST:PORT, ray://HOST:PORT, auto for the one on this machine, or local for a new one on this
    machine that ends with the command. None: that of the variable RAY_ADDRESS, or local."""
    storage: str | None = setting(None, PLACE)
    """Where runs are stored so that every node of the cluster sees them: a shared directory, or a URL such as
    s3://bucket/path (needs the package s3fs). None: the directory of the runs."""

    @property
    def resources(self) -> Resources:
        names = [field.name for field in dataclasses.fields(Resources)]
        return Resources(**{name: getattr(self, name) for name in names})


def refuse_cluster_flags(given: ClusterArguments, why: str) -> None:
    """Raise a `UsageError` if a flag was given that needs a cluster."""
    for field in dataclasses.fields(ClusterArguments):
        if getattr(given, field.name) != field.default:
            raise UsageError(f"{field.name} has no effect {why}")
