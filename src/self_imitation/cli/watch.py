"""`sil watch`."""

import os
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from self_imitation.cli import terminal
from self_imitation.cli.parse import parse
from self_imitation.settings import setting, whole
from self_imitation.storage import files, run_directory


@dataclass(frozen=True)
class WatchArguments:
    """Show a run or an experiment in the browser, also while it trains. The page is only served to this machine."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN|DIR")]
    """Run directory; a run that was trained with --record also shows what it remembers, imitates and does. Or the
    directory of an experiment's runs, such as runs/grid-worlds: a table of all of them."""
    port: int = setting(0, whole(0, 65_535))
    """Port on 127.0.0.1. 0: any free one."""
    open: bool = False
    """Open the page in the browser."""


def watch(arguments: Sequence[str]) -> int:
    given = parse(WatchArguments, "watch", arguments)
    path = files.absolute(given.run)
    from self_imitation.experiments import status
    from self_imitation.watch import server, sites

    is_experiment = os.path.isfile(path / status.FILE)
    site = sites.ExperimentSite(path) if is_experiment else sites.RunSite(run_directory.open_run(given.run))
    with server.create(site, given.port) as pages:
        terminal.say(f"{pages.url} shows {path.resolve()} (Ctrl-C stops it)")
        if given.open:
            webbrowser.open(pages.url)
        try:
            pages.serve_forever()
        except KeyboardInterrupt:
            terminal.say("Stopped.")
    return 0
