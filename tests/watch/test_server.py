"""The server of `sil watch`: what it gives, and all that it refuses."""

import json
import os
import signal
import socket
import threading
import time

import pytest
import recorded_run
from watch.serving import ask, served

from self_imitation.cli.main import main
from self_imitation.watch import sites


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watch")
    made = recorded_run.create(folder / "run", record=True)
    recorded_run.add_row(made, 800, 2.0)
    recorded_run.add_snapshot(made, 800)
    (folder / "secret").write_text("outside")
    (folder / "100.json").write_text('"outside"')
    return made


@pytest.fixture(scope="module")
def pages(run):
    with served(sites.RunSite(run)) as made:
        yield made


def test_it_gives_the_page_the_state_and_what_was_recorded(pages):
    answer, body = ask(pages, "/")
    assert answer.status == 200
    assert answer.getheader("Content-Type") == "text/html; charset=utf-8"
    assert b"a2c+sil on apple-key-door-treasure" in body
    _, body = ask(pages, "/run.json?now")
    state = json.loads(body)
    assert (state["step"], state["total_steps"], state["finished"], state["snapshots"]) == (800, 1600, False, [800])
    assert [(own["seed"], own["return_mean"]) for own in state["curves"]] == [(3, [2.0]), (4, [2.0])]
    _, body = ask(pages, "/snapshots/800.json")
    assert json.loads(body)["step"] == 800


def test_the_state_is_only_sent_when_it_has_changed(pages):
    first, _ = ask(pages, "/run.json")
    again, body = ask(pages, "/run.json", If_None_Match=first.getheader("ETag"))
    assert (again.status, body) == (304, b"")
    assert int(again.getheader("X-Idle-Seconds")) < 600


@pytest.mark.parametrize(
    "path",
    [
        "/snapshots/801.json",
        "/snapshots/0800.json",
        "/snapshots/800.json/",
        "/snapshots/../../../secret",
        "/snapshots/../../100.json",
        "/snapshots/..%2f..%2f..%2f100.json",
        "/%2e%2e/secret",
        "/snapshots/%38%30%30.json",
        "//etc/passwd",
        "/etc/passwd",
        "/config.json",
        "/metrics.csv",
        "/record/snapshots/800.json",
        "http://example.com/secret",
        "secret",
        "/snapshots/800.json\\..\\secret",
    ],
)
def test_other_addresses_are_not_found(pages, path):
    answer, body = ask(pages, path)
    assert (answer.status, body) == (404, b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
def test_methods_that_do_not_read_are_refused(pages, method):
    answer, _ = ask(pages, "/run.json", method)
    assert (answer.status, answer.getheader("Allow")) == (405, "GET, HEAD")
    assert ask(pages, "/run.json", "BREW")[0].status == 501


def test_head_sends_no_body(pages):
    answer, body = ask(pages, "/", "HEAD")
    assert (answer.status, body) == (200, b"")
    assert int(answer.getheader("Content-Length")) > 1000


@pytest.mark.parametrize("host", ["evil.example", "evil.example:PORT", "127.0.0.1", "127.0.0.1:1", "", "[::1]:PORT"])
def test_other_names_for_this_machine_are_refused(pages, host):
    """A page of another site could resolve its own name to the loopback address."""
    answer, body = ask(pages, "/run.json", Host=host.replace("PORT", str(pages.port)))
    assert (answer.status, body) == (421, b"")
    assert ask(pages, "/run.json", Host=f"localhost:{pages.port}")[0].status == 200


def test_only_this_machine_is_served(pages):
    assert pages.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("path", ["/", "/run.json", "/snapshots/800.json", "/nothing"])
def test_answers_are_not_stored_guessed_or_framed(pages, path):
    answer, _ = ask(pages, path)
    assert answer.getheader("Cache-Control") == "no-store"
    assert answer.getheader("X-Content-Type-Options") == "nosniff"
    assert answer.getheader("Access-Control-Allow-Origin") is None
    assert "default-src 'none'" in answer.getheader("Content-Security-Policy")
    assert "frame-ancestors 'none'" in answer.getheader("Content-Security-Policy")
    assert "Python" not in answer.getheader("Server")


@pytest.mark.parametrize("link", ["record", "record/snapshots", "record/snapshots/100.json", "metrics.csv"])
def test_symbolic_links_are_not_followed(tmp_path, link):
    outside = recorded_run.create(tmp_path / "outside", record=True)
    recorded_run.add_row(outside, 100, 1.0)
    recorded_run.add_snapshot(outside, 100)
    run = recorded_run.create(tmp_path / "run", record=True)
    path = run.path / link
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(outside.path / link, path)
    with served(sites.RunSite(run)) as pages:
        assert ask(pages, "/snapshots/100.json")[0].status == 404
        assert json.loads(ask(pages, "/run.json")[1])["curves"] == []


def test_a_named_pipe_is_not_waited_for(tmp_path):
    run = recorded_run.create(tmp_path / "run", record=True)
    (run.path / "record" / "snapshots").mkdir(parents=True)
    os.mkfifo(run.path / "record" / "snapshots" / "5.json")
    with served(sites.RunSite(run)) as pages:
        assert ask(pages, "/snapshots/5.json")[0].status == 404


def test_a_damaged_table_is_reported(tmp_path):
    run = recorded_run.create(tmp_path / "run")
    (run.path / "metrics.csv").write_bytes(b"\xff\n")
    with served(sites.RunSite(run)) as pages:
        answer, body = ask(pages, "/run.json")
    assert answer.status == 503
    assert b"is damaged: not text" in body


def test_a_port_in_use_is_refused_in_one_line(run, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["watch", str(run.path), "--port", str(port)]) == 2
    error = capsys.readouterr().err
    assert error == f"sil: port: {port} is not allowed; Address already in use; allowed: a free port, or 0 for any\n"


@pytest.mark.parametrize(
    ("arguments", "message"), [(["nothing"], "no such run: 'nothing'"), ([".", "--port", "70000"], "port: 70000")]
)
def test_bad_arguments_are_refused_in_one_line(arguments, message, capsys):
    assert main(["watch", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_command_says_where_the_page_is_until_it_is_interrupted(run, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    begun = time.monotonic()
    assert main(["watch", str(run.path), "--open"]) == 0
    assert time.monotonic() - begun < 10
    first, last = capsys.readouterr().out.splitlines()
    assert first == f"{opened[0]} shows {run.path} (Ctrl-C stops it)"
    assert first.startswith("http://127.0.0.1:")
    assert last == "Stopped."
