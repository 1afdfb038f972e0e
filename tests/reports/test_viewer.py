"""The page of a run, in a real browser: what a reader does with it, and what a hostile run cannot."""

import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread

import pytest
from fake_model import FakeModel
from playwright.sync_api import expect

from mlagentbench.agents.base import Agent
from mlagentbench.analysis.anytime import StepGrade
from mlagentbench.analysis.runs import read_runs
from mlagentbench.errors import UsageError
from mlagentbench.pages.layout.invisible_chars import reveal_invisible_chars
from mlagentbench.pages.viewer.excerpts import make_excerpt, rendered_size, size_cap
from mlagentbench.pages.viewer.model_call_views import view_model_calls as asked_of
from mlagentbench.pages.viewer.run_page import write_run_page
from mlagentbench.pages.viewer.server import ViewerServer
from mlagentbench.process.findings import Finding
from mlagentbench.records import AgentSpec, Call, Message, ModelCall, Prompt, Reply
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import execute_run as run_one

EVIL = "</pre></script><script>window.owned = 1</script><img src=x onerror='window.owned = 2'>"
HOSTILE = f"""
import sys
print({EVIL!r})
print("javascript:window.owned=3  \\u202egnp.exe  \\x1b[31mred\\0")
print("[link](javascript:alert(1)) <a href='javascript:alert(1)'>here</a>")
print("x" * 1_000_000)
sys.exit(3)
"""


def research(env):
    """Looks, writes, runs, fails, runs again, submits; a model is asked before each step."""
    script = 'import time\n\nprint("validation mean absolute error: 2.5")\nopen("submission.csv", "w")\n'
    calls = [
        Call(action="List Files", args={"dir_path": "."}, thought="Where am I?\nI look."),
        Call(
            action="Write File",
            args={"file_name": "train.py", "content": script},
            thought="A needle in a script.",
        ),
        Call(action="Execute Script", args={"script_name": "train.py"}),
        Call(action="Read File", args={"file_name": "missing.py"}, thought="Is there a needle?"),
        Call(action="Final Answer", args={"final_answer": "done"}),
    ]
    said = [Message(role="user", text="Solve it.")]
    for call in calls:
        said.append(Message(role="assistant", text=env.ask(said).text))
        env.step(call)


def attack(env):
    env.ask([Message(role="user", text=EVIL)])
    env.step(Call(action="Write File", args={"file_name": "bad.py", "content": HOSTILE}, thought=EVIL))
    env.step(Call(action="Execute Script", args={"script_name": "bad.py"}))
    args = {
        EVIL: EVIL,
        "deep": {"x": [EVIL] * 3},
        "wide": "y" * 1_000_000,
        "odd": "\x1b[31mred\x1b[0m nul:\0 bell:\a",
    }
    env.step(Call(action=EVIL, args=args, thought="\u202e\0" * 50))


def played(setup, path, behaviour, replies):
    """A whole run whose agent is a function and whose model says its lines."""

    class Played(Agent):
        def run(self, env):
            behaviour(env)

    agent = Played()
    agent.models = {"main": FakeModel(replies)}
    folder = RunFolder.create(path, setup.spec(AgentSpec(agent="played"), 0, setup.task.config.limits))
    run_one(setup, agent, folder)
    return read_runs([path])[0]


@pytest.fixture(scope="module")
def researched(setup, tmp_path_factory):
    """The page of a run, with findings and grades."""
    place = tmp_path_factory.mktemp("researched")
    run = played(setup, place / "run", research, [f"reply {number}" for number in range(5)])
    found = Finding(
        kind="guess", title="file guessed", sentence="It asked for a file that never was.", steps=(4,)
    )
    grades = [StepGrade(step=number, score=6.0 - number, key="k") for number in (1, 2, 3)]
    grades.append(StepGrade(step=4, invalid="no rows", key="k"))
    write_run_page(run, place / "run.html", "index.html", [found], grades)
    return (place / "run.html").as_uri()


@pytest.fixture(scope="module")
def attacked(setup, tmp_path_factory):
    """The page of a run that tries to run in it."""
    place = tmp_path_factory.mktemp("attacked")
    write_run_page(played(setup, place / "run", attack, [EVIL]), place / "run.html")
    return (place / "run.html").as_uri()


@pytest.fixture
def serve():
    """Servers on free ports, ended with the test."""
    servers = []

    def begin(folder):
        server = ViewerServer(folder)
        servers.append(server)
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


def current(page):
    return page.evaluate("document.querySelector('.step.current')?.id")


def test_a_page_tells_the_run_its_verdict_and_every_step(researched, visit):
    page = visit(researched)
    head = page.locator("#head")
    for words in (
        "toy",
        "seed 0",
        "open edition",
        "Invalid",
        "mean absolute error, lower is better",
        "± 0.1 over 8 runs",
        "5 of 20",
    ):
        expect(head).to_contain_text(words)
    head.locator("#setting summary").click()
    expect(head).to_contain_text("Hash of the grader")
    step = page.locator("#step-2")
    for words in (
        "Write File train.py",
        "A needle in a script.",
        'print("validation',
        "score 4 (+20.0%)",
        "40 tokens",
    ):
        expect(step).to_contain_text(words)
    step.get_by_text("train.py · +").click()
    expect(step.locator(".diff ins").first).to_contain_text("import time")
    step.get_by_text("1 question to").click()
    expect(step.locator(".asked")).to_contain_text("reply 1")
    expect(step.locator(".asked")).to_contain_text("1 message as in the question before")
    expect(page.locator("#step-4 .badge.bad")).to_have_text("failed")
    expect(page.locator("#step-4")).to_contain_text("It asked for a file that never was.")
    expect(page.locator("#step-4")).to_contain_text("no rows")
    expect(page.locator("#timeline a")).to_have_count(5)
    expect(page.locator("#timeline .found")).to_have_count(1)
    assert page.locator("#timeline path.score").get_attribute("d").count("V") == 2


def test_keys_move_through_the_steps_and_the_address_follows(researched, visit):
    page = visit(researched)
    for key, wanted in [
        ("j", 1),
        ("j", 2),
        ("ArrowRight", 3),
        ("k", 2),
        ("ArrowLeft", 1),
        ("G", 5),
        ("g", 1),
        ("f", 4),
    ]:
        page.keyboard.press(key)
        assert current(page) == f"step-{wanted}", key
        assert page.url.endswith(f"#step-{wanted}")
    expect(page.locator("#timeline a.current")).to_have_attribute("href", "#step-4")
    page.keyboard.press("o")
    assert page.locator("#step-4 details").first.get_attribute("open") is not None
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()


def test_a_link_opens_its_step_and_the_timeline_jumps(researched, visit):
    page = visit(f"{researched}#step-3")
    assert current(page) == "step-3"
    page.locator("#timeline a[href='#step-5'] rect").last.click()
    assert current(page) == "step-5"
    expect(page.locator("#step-5")).to_be_in_viewport()
    page.locator(".findings a").click()
    assert current(page) == "step-4"


def test_the_link_of_a_step_is_copied(researched, visit):
    page = visit(researched, permissions=["clipboard-read", "clipboard-write"])
    page.locator("#step-2 .number").click()
    expect(page.locator("#said")).to_contain_text("copied")
    assert page.evaluate("navigator.clipboard.readText()").endswith("run.html#step-2")


def test_search_counts_matches_goes_from_one_to_the_next_and_unfolds(researched, visit):
    page = visit(researched)
    page.keyboard.press("/")
    page.keyboard.type("NEEDLE")
    expect(page.locator("#search output")).to_have_text("0 of 2")
    page.keyboard.press("Enter")
    assert current(page) == "step-2"
    page.keyboard.press("Enter")
    expect(page.locator("#search output")).to_have_text("2 of 2")
    assert current(page) == "step-4"
    page.keyboard.press("Shift+Enter")
    assert current(page) == "step-2"
    page.keyboard.press("Escape")
    expect(page.locator("#search output")).to_be_empty()
    page.keyboard.press("/")
    page.keyboard.type("reply 3")
    page.keyboard.press("Enter")
    expect(page.locator("#step-4 .asked").get_by_text("reply 3")).to_be_visible()


def test_nothing_that_an_agent_wrote_runs_and_all_of_it_is_shown(attacked, visit):
    page = visit(attacked)
    for step in page.locator(".step details").all():
        step.evaluate("each => { each.open = true; }")
    assert page.evaluate("window.owned") is None
    assert page.locator("#steps script, #steps img, #steps a:not(.number)").count() == 0
    seen = page.locator("#steps").inner_text()
    for words in (
        EVIL,
        "⟨U+202E⟩gnp.exe",
        "␛[31mred",
        "nul:␀",
        "bell:␇",
        "javascript:window.owned=3",
        "characters left out",
    ):
        assert words in seen
    assert "\u202e" not in page.content()
    assert page.locator("#step-2 .badge.bad").count() == 1


def test_a_script_that_found_its_way_in_would_be_refused(researched, browser):
    page = browser.new_page()
    page.goto(researched)
    page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.owned = 1";
            document.body.append(script);
            document.body.insertAdjacentHTML("beforeend", "<img src='data:,' onerror='window.owned = 2'>");
        }"""
    )
    page.wait_for_function("document.body.lastElementChild.complete")
    assert page.evaluate("window.owned") is None
    page.close()


def test_a_phone_shows_everything_without_scrolling_sideways(attacked, visit):
    page = visit(attacked, width=390, has_touch=True)
    for each in page.locator("details").all():
        each.evaluate("each => { each.open = true; }")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    expect(page.locator("#step-1 pre").first).to_be_visible()


def test_without_scripts_the_page_can_be_read(researched, browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(researched)
    page.locator("#step-2").get_by_text("train.py · +").click()
    expect(page.locator("#step-2 .diff")).to_be_visible()
    expect(page.locator("#search input")).to_be_hidden()
    context.close()


PAIRS = [
    ("ink", "paper"),
    ("ink", "card"),
    ("ink", "inset"),
    ("ink", "good-soft"),
    ("ink", "bad-soft"),
    ("ink", "warn-soft"),
]
PAIRS += [
    ("muted", "paper"),
    ("muted", "card"),
    ("muted", "inset"),
    ("accent", "paper"),
    ("accent", "accent-soft"),
]
PAIRS += [
    ("good", "good-soft"),
    ("bad", "bad-soft"),
    ("warn", "warn-soft"),
    ("warn", "inset"),
    ("paper", "accent"),
]


def luminance(colour):
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").rstrip(")").split(",")]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(researched, visit, scheme):
    page = visit(researched, color_scheme=scheme)
    resolve = "name => { const p = document.createElement('p'); document.body.append(p); p.style.color = `var(--${name})`;"
    resolve += " return getComputedStyle(p).color; }"
    for text, ground in PAIRS:
        dim, bright = sorted(luminance(page.evaluate(resolve, name)) for name in (text, ground))
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, (text, ground)


def test_the_reader_chooses_between_light_and_dark_and_it_is_remembered(researched, visit):
    page = visit(researched, color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.locator("#theme").click()
    dark = page.evaluate(ground)
    assert luminance(dark) < luminance(light)
    page.reload()
    assert page.evaluate(ground) == dark


def test_new_steps_appear_while_the_reader_stays_where_he_is(open_env, do, serve, visit, tmp_path):
    env = open_env()
    for number in range(6):
        do(env, "Write File", file_name=f"{number}.py", content="print(1)\n" * 30)
    folder = RunFolder(tmp_path / "run")
    with folder.lock():
        page = visit(serve(tmp_path / "run").address)
        expect(page.locator("#head")).to_contain_text("Still going")
        expect(page.locator(".step")).to_have_count(6)
        page.keyboard.press("j")
        page.keyboard.press("j")
        place = page.locator("#step-2").bounding_box()
        do(env, "List Files", dir_path=".")
        do(env, "Write File", file_name="late.py", content=EVIL)
        expect(page.locator(".step")).to_have_count(8)
        expect(page.locator("#timeline a")).to_have_count(8)
        expect(page.locator("#news")).to_have_text("2 new steps ↓")
        assert current(page) == "step-2"
        assert page.locator("#step-2").bounding_box() == place
        page.locator("#news").click()
        assert current(page) == "step-7"
        expect(page.locator("#step-8")).to_contain_text(EVIL)
        assert page.evaluate("window.owned") is None
    env.close()


def test_a_folder_of_runs_is_a_list_that_leads_to_each(play, serve, visit, tmp_path):
    play(lambda env: None, name="runs/one")
    play(lambda env: env.step(Call(action="List Files", args={"dir_path": "."})), name="runs/deeper/two #%")
    page = visit(serve(tmp_path / "runs").address, width=390)
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator(".lede")).to_have_text("2 finished")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.locator("a[title='deeper/two #%']").click()
    expect(page.locator(".step")).to_have_count(1)
    play(lambda env: None, name="runs/three")
    page.locator("nav a.brand").evaluate("link => link.click()")
    expect(page.locator("tbody tr")).to_have_count(3)


def asked(server, path, method="GET", **headers):
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, headers=headers)
    reply = connection.getresponse()
    body = reply.read().decode()
    connection.close()
    return reply.status, body


def test_the_server_gives_pages_of_runs_to_this_machine_and_nothing_else(play, serve, tmp_path):
    play(lambda env: None, name="runs/one")
    (tmp_path / "runs" / "secret.txt").write_text("a secret")
    server = serve(tmp_path / "runs")
    assert asked(server, "/run/one")[0] == 200
    for path in (
        "/run/",
        "/run/one/run.json",
        "/run/../runs/one",
        "/secret.txt",
        "/run/secret.txt",
        "/run/%2e%2e",
        "/run/x\0",
    ):
        assert asked(server, path.replace("\0", "%00"))[0] == 404, path
    assert asked(server, "/run/one", Host="evil.example")[0] == 403
    assert asked(server, "/run/one", Host="127.0.0.1.evil.example")[0] == 403
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        assert asked(server, "/run/one", method)[0] == 501
    with pytest.raises(UsageError, match="--port 0"):
        ViewerServer(tmp_path / "runs", server.server_port)


def test_a_damaged_record_is_told_and_does_not_end_the_server(play, serve, tmp_path):
    play(lambda env: env.step(Call(action="List Files", args={"dir_path": "."})))
    server = serve(tmp_path / "run")
    whole = (tmp_path / "run" / "trace.jsonl").read_text()
    (tmp_path / "run" / "trace.jsonl").write_text("{}\n" + whole)
    status, body = asked(server, "/")
    assert status == 500 and "line 1 is damaged" in body
    (tmp_path / "run" / "trace.jsonl").write_text(whole)
    assert asked(server, "/")[0] == 200


def test_the_command_prints_its_address_and_ends_with_ctrl_c(play, tmp_path):
    play(lambda env: None)
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "mlagentbench",
        "view",
        str(tmp_path / "run"),
        "--no-browser",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().split()[0]
        assert address.startswith("http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


def test_a_folder_without_runs_is_one_line(cli, tmp_path):
    for place in (tmp_path, Path("nowhere")):
        ended = cli("view", place, "--no-browser")
        assert ended.returncode == 2
        assert ended.stderr.count("\n") == 1


def test_a_question_does_not_repeat_what_the_one_before_had():
    words = [Message(role="user", text=f"message {number}") for number in range(5)]
    told = {"inside": False, "role": "main", "model": "m", "seconds": 1.0}
    calls = [
        ModelCall(
            number=1, step=1, prompt=Prompt(messages=tuple(words[:3])), reply=Reply(text="yes"), **told
        ),
        ModelCall(number=2, step=2, prompt=Prompt(messages=tuple(words[1:])), too_long="by far", **told),
    ]
    first, second = asked_of(calls, 0, 10_000)
    assert [piece.head for _, piece in first.messages] == ["message 0", "message 1", "message 2"]
    assert (second.repeated_messages, second.error) == (2, "by far")
    assert [piece.head for _, piece in second.messages] == ["message 3", "message 4"]
    assert asked_of(calls, 1, 10_000) == [second]


def test_what_cannot_be_seen_is_shown():
    assert reveal_invisible_chars("a\tb\nc") == "a\tb\nc"
    assert reveal_invisible_chars("\x1b[1m\0\x7f\x85") == "␛[1m␀␡⟨U+0085⟩"
    assert reveal_invisible_chars("10%\r20%\r\n") == "10%␍\n20%\n"
    assert (
        reveal_invisible_chars("\u202e\u2066\u200b\ufeff\U000e0041\ud800")
        == "⟨U+202E⟩⟨U+2066⟩⟨U+200B⟩⟨U+FEFF⟩⟨U+E0041⟩⟨U+D800⟩"
    )


def test_a_text_that_is_cut_keeps_both_ends_and_says_how_much_is_gone():
    text = "".join(f"line {number}\n" for number in range(1000))
    piece = make_excerpt(text, 1000)
    assert text.startswith(piece.head) and text.endswith(piece.tail)
    assert len(piece.head) + len(piece.tail) + piece.omitted_chars == len(text)
    assert rendered_size(piece.head + piece.tail) <= 1000
    assert rendered_size("".join(make_excerpt("<" * 5000, 1000)[::2])) <= 1000
    assert make_excerpt("short", 1000) == ("short", 0, "")


def test_only_long_texts_give_way_and_all_together_keep_the_budget():
    weights = [10, 20, 5000, 9000]
    cap = size_cap(weights, 4030)
    assert cap == 2000
    assert sum(min(each, cap) for each in weights) == 4030
    assert size_cap([10, 20], 4030) > 9000
