"""The access ledger in the page of a run and in `show`: short, in its step, and harmless whatever a path is called."""

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
    MAX_PATH_CHARS,
    MAX_UNFOLDED_ACCESSES,
    count_outside_accesses,
    view_accesses,
)
from mlagentbench.pages.viewer.run_page import render_run_page
from mlagentbench.records import Call
from mlagentbench.runner.folder import RunFolder
from mlagentbench.sandbox.access_log.records import Access, access_file

EVIL = "</code><script>window.owned = 1</script><img src=x onerror='window.owned = 2'>"
STRAYING = f"""
import os, socket
def attempt(deed):
    try:
        deed()
    except OSError as error:
        print(error)
open("made.csv", "w").write("1")
attempt(lambda: open("/etc/shadow"))
attempt(lambda: open("/nowhere/" + {EVIL!r}))
attempt(lambda: open("/nowhere/two\\nlines\\u202e"))
attempt(lambda: socket.create_connection(("192.0.2.1", 80), 1))
attempt(lambda: socket.create_connection(("127.0.0.1", 9), 1))
os.listdir("/")
"""


def stray(env):
    """Looks where it should not, then does nothing."""
    env.step(Call(action="Write File", args={"file_name": "stray.py", "content": STRAYING}))
    env.step(Call(action="Execute Script", args={"script_name": "stray.py"}))
    env.step(Call(action="Final Answer", args={"final_answer": "done"}))


@pytest.fixture
def strayer(play, setup, tmp_path):
    """A real run with a ledger."""
    play(stray, setup=replace(setup, ledger=True))
    return read_runs([tmp_path / "run"])[0]


def kept(run: Run, step: int, *accesses: Access) -> Run:
    """The run with these in its ledger."""
    path = access_file(run.folder.path, step)
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{each.model_dump_json()}\n" for each in accesses))
    return Run(RunFolder(run.folder.path), run.result)


def test_a_step_shows_where_it_strayed_and_folds_the_rest(strayer, visit, tmp_path):
    (tmp_path / "run.html").write_text(render_run_page(strayer))
    page = visit((tmp_path / "run.html").as_uri())
    step = page.locator("#step-2 .access")
    expect(step.get_by_text("read, refused /etc/shadow")).to_be_visible()
    expect(step.get_by_text("connect, refused inet:192.0.2.1:80")).to_be_visible()
    expect(step.locator(".through")).to_have_text("read /")
    expect(step.get_by_text("/workspace/made.csv")).to_be_hidden()
    step.get_by_text("1 socket of its own").click()
    expect(step.locator("pre")).to_contain_text("write  /workspace/made.csv")
    expect(step.locator("pre")).to_contain_text("connect  inet:127.0.0.1:9")
    assert page.locator("#step-1 .access, #step-3 .access").count() == 0
    expect(page.locator("#head")).to_contain_text("tried 5 files or sockets; 1 went through")
    page.locator("#head").get_by_role("link", name="2", exact=True).click()
    assert page.evaluate("document.querySelector('.step.current')?.id") == "step-2"
    expect(page.locator("#setting")).to_contain_text("bwrap, access ledger")


def test_a_path_can_neither_run_nor_pretend_to_be_two(strayer, visit, tmp_path):
    write_report([strayer], tmp_path / "site", lambda line: None)
    (path,) = (tmp_path / "site" / "runs").glob("*.html")
    page = visit(path.as_uri())
    assert page.evaluate("window.owned") is None and page.locator("#steps script, #steps img").count() == 0
    shown = page.locator("#step-2 .access").inner_text()
    assert f"/nowhere/{EVIL}" in shown and "two␊lines⟨U+202E⟩" in shown


def test_a_run_without_a_ledger_says_nothing_of_it(tmp_path):
    run = make_run(tmp_path / "run", 0.0, observations=("done",))
    run = kept(run, 1, Access(path="/etc/shadow", mode="read", count=1))
    assert not run.accesses and not count_outside_accesses(run).attempted
    assert 'class="access"' not in render_run_page(run)


def test_what_went_through_comes_first_and_a_flood_of_long_paths_keeps_the_page_small(tmp_path):
    run = make_run(tmp_path / "run", 0.0, observations=("done", "again"), ledger=True)
    vain = [
        Access(path=f"/x/{number}{'y' * 4000}", mode="read", count=2, refused=2) for number in range(3000)
    ]
    run = kept(run, 1, *vain, Access(path="/secret", mode="read", count=3, refused=1))
    found = view_accesses(run, 0, 50_000)
    assert list(found) == [1] and len(found[1].outside) == MAX_UNFOLDED_ACCESSES
    first, second, *_ = found[1].outside
    assert (first.operation, first.path, first.denied) == ("read ×3, 1 refused", "/secret", False)
    assert second.operation == "read ×2, refused" and len(second.path) <= MAX_PATH_CHARS + 3
    assert (
        found[1].summary
        == "2,995 more outside its own files, 0 of its own files, 0 of the system and the runtime"
    )
    assert found[1].rest.omitted_chars and len(render_run_page(run)) < 400_000
    assert view_accesses(run, 1, 50_000) == {} and count_outside_accesses(run) == (3001, 1, (1,))


def test_a_damaged_ledger_is_a_page_that_says_so(tmp_path):
    run = make_run(tmp_path / "run", 0.0, observations=("done",), ledger=True)
    access_file(run.folder.path, 1).parent.mkdir()
    access_file(run.folder.path, 1).write_text("{}\n")
    write_report([Run(RunFolder(run.folder.path), run.result)], tmp_path / "site", lambda line: None)
    (path,) = (tmp_path / "site" / "runs").glob("*.html")
    assert "step-0001.jsonl is damaged" in path.read_text()


def test_show_counts_and_names_what_a_step_tried(strayer, cli):
    told = cli("show", strayer.folder.path).stdout
    assert told.count("outside its own files: 5 tried, 4 refused") == 1
    told = cli("show", strayer.folder.path, "--step", 2).stdout
    assert "outside its own files: read, refused '/etc/shadow'" in told and r"two\nlines\u202e'" in told
    strays = json.loads(cli("show", strayer.folder.path, "--step", 2, "--json").stdout)["strays"]
    assert {"path": "/etc/shadow", "mode": "read", "count": 1, "refused": 1} in strays
    assert json.loads(cli("show", strayer.folder.path, "--json").stdout)["strays"] == {"2": strays}


def test_the_ledger_goes_along_with_an_exported_run(strayer, tmp_path):
    export_run(strayer.folder, tmp_path / "run.zip")
    with open_run_or_bundle(tmp_path / "run.zip") as folder:
        assert (Path(folder) / "access" / "step-0002.jsonl").is_file()
