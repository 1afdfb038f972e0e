"""The access log in the page of a run and in `show`: short, at its step, and harmless for any path."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import expect
from run_factory import make_run

from mlagentbench.analysis.runs import Run, read_runs
from mlagentbench.bundles.read import open_run_or_bundle
from mlagentbench.bundles.write import export_run
from mlagentbench.pages.site.report import write_report
from mlagentbench.pages.viewer.access_views import (
    MAX_EXPANDED_ACCESSES,
    MAX_PATH_CHARS,
    count_unexpected_accesses,
    view_accesses,
)
from mlagentbench.pages.viewer.run_page import render_run_page
from mlagentbench.records import Call
from mlagentbench.runner.folder import RunFolder
from mlagentbench.sandbox.access_log.records import Access, access_file

HOSTILE_HTML = "</code><script>window.owned = 1</script><img src=x onerror='window.owned = 2'>"
SNOOPING_SCRIPT = f"""
import os, socket
def attempt(operation):
    try:
        operation()
    except OSError as error:
        print(error)
open("made.csv", "w").write("1")
attempt(lambda: open("/etc/shadow"))
attempt(lambda: open("/nowhere/" + {HOSTILE_HTML!r}))
attempt(lambda: open("/nowhere/two\\nlines\\u202e"))
attempt(lambda: socket.create_connection(("192.0.2.1", 80), 1))
attempt(lambda: socket.create_connection(("127.0.0.1", 9), 1))
os.listdir("/")
"""


def snoop(env):
    """Access files and addresses that the task does not need, then submit."""
    env.step(Call(action="Write File", args={"file_name": "snoop.py", "content": SNOOPING_SCRIPT}))
    env.step(Call(action="Execute Script", args={"script_name": "snoop.py"}))
    env.step(Call(action="Final Answer", args={"final_answer": "done"}))


@pytest.fixture(scope="module")
def snooping_run(play_in, setup, tmp_path_factory):
    """A real run with an access log, which no test changes."""
    folder = tmp_path_factory.mktemp("snooping") / "run"
    play_in(folder, snoop, setup=replace(setup, record_access=True))
    return read_runs([folder])[0]


def with_accesses(run: Run, step: int, *accesses: Access) -> Run:
    """Write these accesses into the access log of the run."""
    path = access_file(run.folder.path, step)
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{access.model_dump_json()}\n" for access in accesses))
    return Run(RunFolder(run.folder.path), run.result)


def test_a_step_shows_unexpected_accesses_and_collapses_the_others(snooping_run, visit, tmp_path):
    (tmp_path / "run.html").write_text(render_run_page(snooping_run))
    page = visit((tmp_path / "run.html").as_uri())
    step = page.locator("#step-2 .access")
    expect(step.get_by_text("read, refused /etc/shadow")).to_be_visible()
    expect(step.get_by_text("connect, refused inet:192.0.2.1:80")).to_be_visible()
    expect(step.locator(".allowed")).to_have_text("read /")
    expect(step.get_by_text("/workspace/made.csv")).to_be_hidden()
    step.get_by_text("1 local socket").click()
    expect(step.locator("pre")).to_contain_text("write  /workspace/made.csv")
    expect(step.locator("pre")).to_contain_text("connect  inet:127.0.0.1:9")
    assert page.locator("#step-1 .access, #step-3 .access").count() == 0
    expect(page.locator("#head")).to_contain_text("5 attempted, 1 allowed")
    page.locator("#head").get_by_role("link", name="2", exact=True).click()
    assert page.evaluate("document.querySelector('.step.current')?.id") == "step-2"
    expect(page.locator("#settings")).to_contain_text("bwrap, access log")


@pytest.mark.usefixtures("unsaved_figures")
def test_a_path_can_neither_run_code_nor_look_like_two_paths(snooping_run, visit, tmp_path):
    write_report([snooping_run], tmp_path / "site", lambda line: None)
    (path,) = (tmp_path / "site" / "runs").glob("*.html")
    page = visit(path.as_uri())
    assert page.evaluate("window.owned") is None and page.locator("#steps script, #steps img").count() == 0
    shown = page.locator("#step-2 .access").inner_text()
    assert f"/nowhere/{HOSTILE_HTML}" in shown and "two␊lines⟨U+202E⟩" in shown


def test_a_run_without_an_access_log_shows_no_accesses(tmp_path):
    run = make_run(tmp_path / "run", 0.0, observations=("done",))
    run = with_accesses(run, 1, Access(path="/etc/shadow", mode="read", count=1))
    assert not run.accesses and not count_unexpected_accesses(run).attempted
    assert 'class="access"' not in render_run_page(run)


def test_successful_accesses_come_first_and_many_long_paths_keep_the_page_small(tmp_path):
    run = make_run(tmp_path / "run", 0.0, observations=("done", "again"), record_access=True)
    refused = [
        Access(path=f"/x/{number}{'y' * 4000}", mode="read", count=2, refused=2) for number in range(3000)
    ]
    run = with_accesses(run, 1, *refused, Access(path="/secret", mode="read", count=3, refused=1))
    views = view_accesses(run, 0, 50_000)
    assert list(views) == [1] and len(views[1].unexpected) == MAX_EXPANDED_ACCESSES
    first, second, *_ = views[1].unexpected
    assert (first.operation, first.path, first.refused) == ("read ×3, 1 refused", "/secret", False)
    assert second.operation == "read ×2, refused" and len(second.path) <= MAX_PATH_CHARS + 3
    summary = "2,995 more unexpected, 0 of the agent's own files, 0 files of the system and the runtime"
    assert views[1].summary == summary
    assert views[1].rest.omitted_chars and len(render_run_page(run)) < 400_000
    assert view_accesses(run, 1, 50_000) == {} and count_unexpected_accesses(run) == (3001, 1, (1,))


@pytest.mark.usefixtures("unsaved_figures")
def test_the_page_of_a_run_with_a_damaged_access_log_says_so(tmp_path):
    run = make_run(tmp_path / "run", 0.0, observations=("done",), record_access=True)
    access_file(run.folder.path, 1).parent.mkdir()
    access_file(run.folder.path, 1).write_text("{}\n")
    write_report([Run(RunFolder(run.folder.path), run.result)], tmp_path / "site", lambda line: None)
    (path,) = (tmp_path / "site" / "runs").glob("*.html")
    assert "step-0001.jsonl is damaged" in path.read_text()


def test_show_counts_and_lists_the_unexpected_accesses_of_a_step(snooping_run, cli):
    path = snooping_run.folder.path
    output = cli("show", path).stdout
    assert output.count("unexpected accesses: 5 attempted, 4 refused") == 1
    output = cli("show", path, "--step", 2).stdout
    assert "unexpected access: read, refused '/etc/shadow'" in output and r"two\nlines\u202e'" in output
    step = json.loads(cli("show", path, "--step", 2, "--json").stdout)
    accesses = step["unexpected_accesses"]
    assert {"path": "/etc/shadow", "mode": "read", "count": 1, "refused": 1} in accesses
    run = json.loads(cli("show", path, "--json").stdout)
    assert run["unexpected_accesses"] == {"2": accesses}


def test_an_exported_run_contains_the_access_log(snooping_run, tmp_path):
    export_run(snooping_run.folder, tmp_path / "run.zip")
    with open_run_or_bundle(tmp_path / "run.zip") as folder:
        assert (Path(folder) / "access" / "step-0002.jsonl").is_file()
