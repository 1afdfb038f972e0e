"""The page of a run in a real browser: what readers can do with it, and what a hostile run cannot do."""

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
from mlagentbench.pages.viewer.model_call_views import view_model_calls
from mlagentbench.pages.viewer.run_page import write_run_page
from mlagentbench.pages.viewer.server import ViewerServer
from mlagentbench.process.findings import Finding
from mlagentbench.records import AgentSpec, Call, Message, ModelCall, Prompt, Reply
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.run import execute_run as run_one

HOSTILE_HTML = "</pre></script><script>window.owned = 1</script><img src=x onerror='window.owned = 2'>"
HOSTILE_SCRIPT = f"""
import sys
print({HOSTILE_HTML!r})
print("javascript:window.owned=3  \\u202egnp.exe  \\x1b[31mred\\0")
print("[link](javascript:alert(1)) <a href='javascript:alert(1)'>here</a>")
print("x" * 1_000_000)
sys.exit(3)
"""


def research(env):
    """Read, write, run, fail and submit; call a model before each step."""
    script = 'import time\n\nprint("validation mean absolute error: 2.5")\nopen("submission.csv", "w")\n'
    calls = [
        Call(action="List Files", args={"dir_path": "."}, thought="Which files are there?\nI list them."),
        Call(
            action="Write File",
            args={"file_name": "train.py", "content": script},
            thought="A needle in a script.",
        ),
        Call(action="Execute Script", args={"script_name": "train.py"}),
        Call(action="Read File", args={"file_name": "missing.py"}, thought="Is there a needle?"),
        Call(action="Final Answer", args={"final_answer": "done"}),
    ]
    messages = [Message(role="user", text="Solve it.")]
    for call in calls:
        messages.append(Message(role="assistant", text=env.ask(messages).text))
        env.step(call)


def attack(env):
    """Try to run code in the page through every text that a run records."""
    env.ask([Message(role="user", text=HOSTILE_HTML)])
    script = {"file_name": "bad.py", "content": HOSTILE_SCRIPT}
    env.step(Call(action="Write File", args=script, thought=HOSTILE_HTML))
    env.step(Call(action="Execute Script", args={"script_name": "bad.py"}))
    args = {
        HOSTILE_HTML: HOSTILE_HTML,
        "deep": {"x": [HOSTILE_HTML] * 3},
        "wide": "y" * 1_000_000,
        "odd": "\x1b[31mred\x1b[0m nul:\0 bell:\a",
    }
    env.step(Call(action=HOSTILE_HTML, args=args, thought="\u202e\0" * 50))


def run_agent(setup, path, behaviour, replies):
    """Run a whole run whose agent is a function and whose model gives fixed replies."""

    class Played(Agent):
        def run(self, env):
            behaviour(env)

    agent = Played()
    agent.models = {"main": FakeModel(replies)}
    folder = RunFolder.create(
        path, setup.create_run_spec(AgentSpec(agent="played"), 0, setup.task.config.limits)
    )
    run_one(setup, agent, folder)
    return read_runs([path])[0]


@pytest.fixture(scope="module")
def research_page(setup, tmp_path_factory):
    """The page of a run with findings and grades."""
    folder = tmp_path_factory.mktemp("research")
    run = run_agent(setup, folder / "run", research, [f"reply {number}" for number in range(5)])
    finding = Finding(
        kind="guess", title="file guessed", sentence="The agent guessed a file name.", steps=(4,)
    )
    grades = [StepGrade(step=number, score=6.0 - number, key="k") for number in (1, 2, 3)]
    grades.append(StepGrade(step=4, invalid="no rows", key="k"))
    write_run_page(run, folder / "run.html", "index.html", [finding], grades)
    return (folder / "run.html").as_uri()


@pytest.fixture(scope="module")
def attack_page(setup, tmp_path_factory):
    """The page of a run that tries to execute code in it."""
    folder = tmp_path_factory.mktemp("attack")
    write_run_page(run_agent(setup, folder / "run", attack, [HOSTILE_HTML]), folder / "run.html")
    return (folder / "run.html").as_uri()


@pytest.fixture
def serve():
    """Start servers on free ports; they stop at the end of the test."""
    servers = []

    def start(folder):
        server = ViewerServer(folder)
        servers.append(server)
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def current_step(page):
    return page.evaluate("document.querySelector('.step.current')?.id")


def test_a_page_shows_the_settings_the_verdict_and_every_step(research_page, visit):
    page = visit(research_page)
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
    head.locator("#settings summary").click()
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
    step.get_by_text("1 call to").click()
    expect(step.locator(".model-call")).to_contain_text("reply 1")
    expect(step.locator(".model-call")).to_contain_text("1 message repeated from the previous call")
    expect(page.locator("#step-4 .badge.bad")).to_have_text("failed")
    expect(page.locator("#step-4")).to_contain_text("The agent guessed a file name.")
    expect(page.locator("#step-4")).to_contain_text("no rows")
    expect(page.locator("#timeline a")).to_have_count(5)
    expect(page.locator("#timeline .finding-mark")).to_have_count(1)
    assert page.locator("#timeline path.score").get_attribute("d").count("V") == 2


def test_keys_move_between_steps_and_update_the_address(research_page, visit):
    page = visit(research_page)
    for key, expected in [
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
        assert current_step(page) == f"step-{expected}", key
        assert page.url.endswith(f"#step-{expected}")
    expect(page.locator("#timeline a.current")).to_have_attribute("href", "#step-4")
    page.keyboard.press("o")
    assert page.locator("#step-4 details").first.get_attribute("open") is not None
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()


def test_a_link_and_the_timeline_go_to_their_step(research_page, visit):
    page = visit(f"{research_page}#step-3")
    assert current_step(page) == "step-3"
    page.locator("#timeline a[href='#step-5'] rect").last.click()
    assert current_step(page) == "step-5"
    expect(page.locator("#step-5")).to_be_in_viewport()
    page.locator(".findings a").click()
    assert current_step(page) == "step-4"


def test_a_click_on_the_number_copies_the_link_of_a_step(research_page, visit):
    page = visit(research_page, permissions=["clipboard-read", "clipboard-write"])
    page.locator("#step-2 .number").click()
    expect(page.locator("#status")).to_contain_text("copied")
    assert page.evaluate("navigator.clipboard.readText()").endswith("run.html#step-2")


def test_search_counts_matches_moves_between_them_and_expands_details(research_page, visit):
    page = visit(research_page)
    page.keyboard.press("/")
    page.keyboard.type("NEEDLE")
    expect(page.locator("#search output")).to_have_text("0 of 2")
    page.keyboard.press("Enter")
    assert current_step(page) == "step-2"
    page.keyboard.press("Enter")
    expect(page.locator("#search output")).to_have_text("2 of 2")
    assert current_step(page) == "step-4"
    page.keyboard.press("Shift+Enter")
    assert current_step(page) == "step-2"
    page.keyboard.press("Escape")
    expect(page.locator("#search output")).to_be_empty()
    page.keyboard.press("/")
    page.keyboard.type("reply 3")
    page.keyboard.press("Enter")
    expect(page.locator("#step-4 .model-call").get_by_text("reply 3")).to_be_visible()


def test_text_of_an_agent_is_shown_and_never_executed(attack_page, visit):
    page = visit(attack_page)
    for details in page.locator(".step details").all():
        details.evaluate("element => { element.open = true; }")
    assert page.evaluate("window.owned") is None
    assert page.locator("#steps script, #steps img, #steps a:not(.number)").count() == 0
    shown = page.locator("#steps").inner_text()
    for words in (
        HOSTILE_HTML,
        "⟨U+202E⟩gnp.exe",
        "␛[31mred",
        "nul:␀",
        "bell:␇",
        "javascript:window.owned=3",
        "characters omitted",
    ):
        assert words in shown
    assert "\u202e" not in page.content()
    assert page.locator("#step-2 .badge.bad").count() == 1


def test_the_policy_blocks_a_script_that_is_injected_anyway(research_page, browser):
    page = browser.new_page()
    page.goto(research_page)
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


def test_a_phone_shows_everything_without_horizontal_scrolling(attack_page, visit):
    page = visit(attack_page, width=390, has_touch=True)
    for details in page.locator("details").all():
        details.evaluate("element => { element.open = true; }")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    expect(page.locator("#step-1 pre").first).to_be_visible()


def test_the_page_is_readable_without_javascript(research_page, browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(research_page)
    page.locator("#step-2").get_by_text("train.py · +").click()
    expect(page.locator("#step-2 .diff")).to_be_visible()
    expect(page.locator("#search input")).to_be_hidden()
    context.close()


# Text and background.
COLOR_PAIRS = [
    *(("ink", ground) for ground in ("paper", "card", "inset", "good-soft", "bad-soft", "warn-soft")),
    *(("muted", ground) for ground in ("paper", "card", "inset")),
    *(("accent", ground) for ground in ("paper", "accent-soft")),
    *((name, f"{name}-soft") for name in ("good", "bad", "warn")),
    ("warn", "inset"),
    ("paper", "accent"),
]
RESOLVE_COLOR = """name => {
    const element = document.createElement('p');
    document.body.append(element);
    element.style.color = `var(--${name})`;
    return getComputedStyle(element).color;
}"""


def luminance(color):
    parts = [int(part) / 255 for part in color.removeprefix("rgb(").rstrip(")").split(",")]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(research_page, visit, scheme):
    page = visit(research_page, color_scheme=scheme)
    for text, background in COLOR_PAIRS:
        colors = (page.evaluate(RESOLVE_COLOR, name) for name in (text, background))
        dark, bright = sorted(map(luminance, colors))
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, (text, background)


def test_the_choice_between_light_and_dark_is_stored(research_page, visit):
    page = visit(research_page, color_scheme="light")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.locator("#theme").click()
    dark = page.evaluate(background)
    assert luminance(dark) < luminance(light)
    page.reload()
    assert page.evaluate(background) == dark


def test_new_steps_appear_without_moving_the_reader(open_env, do, serve, visit, tmp_path):
    env = open_env()
    for number in range(6):
        do(env, "Write File", file_name=f"{number}.py", content="print(1)\n" * 30)
    folder = RunFolder(tmp_path / "run")
    with folder.lock():
        page = visit(serve(tmp_path / "run").url)
        expect(page.locator("#head")).to_contain_text("Running")
        expect(page.locator(".step")).to_have_count(6)
        page.keyboard.press("j")
        page.keyboard.press("j")
        position = page.locator("#step-2").bounding_box()
        do(env, "List Files", dir_path=".")
        do(env, "Write File", file_name="late.py", content=HOSTILE_HTML)
        expect(page.locator(".step")).to_have_count(8)
        expect(page.locator("#timeline a")).to_have_count(8)
        expect(page.locator("#new-steps")).to_have_text("2 new steps ↓")
        assert current_step(page) == "step-2"
        assert page.locator("#step-2").bounding_box() == position
        page.locator("#new-steps").click()
        assert current_step(page) == "step-7"
        expect(page.locator("#step-8")).to_contain_text(HOSTILE_HTML)
        assert page.evaluate("window.owned") is None
    env.close()


def test_the_output_of_the_running_step_is_shown_and_changes_the_stamp(open_env, do, serve, until, tmp_path):
    env = open_env()
    text = f"epoch 1 {HOSTILE_HTML}"
    code = f"import os\nprint({text!r}, flush=True)\nwhile not os.path.exists('go'): pass\n"
    do(env, "Write File", file_name="slow.py", content=code)
    with RunFolder(tmp_path / "run").lock():
        server = serve(tmp_path / "run")
        stamp = server.run_index.load_run("")[1]
        script = Thread(target=do, args=(env, "Execute Script"), kwargs={"script_name": "slow.py"})
        script.start()
        until(lambda: "epoch 1 &lt;/pre&gt;" in request(server, "/")[1])
        assert request(server, f"/?after=1&stamp={stamp}")[0] == 200
        (env.context.workspace.root / "go").touch()
        script.join()
        assert "Running step" not in request(server, "/")[1]


def test_a_folder_of_runs_is_a_list_with_links(play, serve, visit, tmp_path):
    play(lambda env: None, name="runs/one")
    play(lambda env: env.step(Call(action="List Files", args={"dir_path": "."})), name="runs/deeper/two #%")
    page = visit(serve(tmp_path / "runs").url, width=390)
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator(".lede")).to_have_text("2 finished")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.locator("a[title='deeper/two #%']").click()
    expect(page.locator(".step")).to_have_count(1)
    play(lambda env: None, name="runs/three")
    page.locator("nav a.brand").evaluate("link => link.click()")
    expect(page.locator("tbody tr")).to_have_count(3)


def request(server, path, method="GET", **headers):
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, headers=headers)
    reply = connection.getresponse()
    body = reply.read().decode()
    connection.close()
    return reply.status, body


def test_the_server_sends_only_run_pages_and_only_to_this_machine(play, serve, tmp_path):
    play(lambda env: None, name="runs/one")
    (tmp_path / "runs" / "secret.txt").write_text("a secret")
    server = serve(tmp_path / "runs")
    assert request(server, "/run/one")[0] == 200
    for path in (
        "/run/",
        "/run/one/run.json",
        "/run/../runs/one",
        "/secret.txt",
        "/run/secret.txt",
        "/run/%2e%2e",
        "/run/x\0",
    ):
        assert request(server, path.replace("\0", "%00"))[0] == 404, path
    assert request(server, "/run/one", Host="evil.example")[0] == 403
    assert request(server, "/run/one", Host="127.0.0.1.evil.example")[0] == 403
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        assert request(server, "/run/one", method)[0] == 501
    with pytest.raises(UsageError, match="--port 0"):
        ViewerServer(tmp_path / "runs", server.server_port)


def test_a_damaged_record_is_reported_and_does_not_stop_the_server(play, serve, tmp_path):
    play(lambda env: env.step(Call(action="List Files", args={"dir_path": "."})))
    server = serve(tmp_path / "run")
    whole = (tmp_path / "run" / "trace.jsonl").read_text()
    (tmp_path / "run" / "trace.jsonl").write_text("{}\n" + whole)
    status, body = request(server, "/")
    assert status == 500 and "line 1 is damaged" in body
    (tmp_path / "run" / "trace.jsonl").write_text(whole)
    assert request(server, "/")[0] == 200


def test_the_command_prints_its_address_and_stops_on_ctrl_c(play, tmp_path):
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


def test_a_folder_without_runs_is_a_one_line_error(cli, tmp_path):
    for folder in (tmp_path, Path("missing")):
        process = cli("view", folder, "--no-browser")
        assert process.returncode == 2
        assert process.stderr.count("\n") == 1


def test_a_model_call_does_not_repeat_the_messages_of_the_previous_call():
    messages = [Message(role="user", text=f"message {number}") for number in range(5)]
    fields = {"inside": False, "role": "main", "model": "m", "seconds": 1.0}
    calls = [
        ModelCall(
            number=1, step=1, prompt=Prompt(messages=tuple(messages[:3])), reply=Reply(text="yes"), **fields
        ),
        ModelCall(number=2, step=2, prompt=Prompt(messages=tuple(messages[1:])), too_long="by far", **fields),
    ]
    first, second = view_model_calls(calls, 0, 10_000)
    assert [excerpt.head for _, excerpt in first.messages] == ["message 0", "message 1", "message 2"]
    assert (second.repeated_messages, second.error) == (2, "by far")
    assert [excerpt.head for _, excerpt in second.messages] == ["message 3", "message 4"]
    assert view_model_calls(calls, 1, 10_000) == [second]


def test_invisible_characters_are_made_visible():
    assert reveal_invisible_chars("a\tb\nc") == "a\tb\nc"
    assert reveal_invisible_chars("\x1b[1m\0\x7f\x85") == "␛[1m␀␡⟨U+0085⟩"
    assert reveal_invisible_chars("10%\r20%\r\n") == "10%␍\n20%\n"
    assert (
        reveal_invisible_chars("\u202e\u2066\u200b\ufeff\U000e0041\ud800")
        == "⟨U+202E⟩⟨U+2066⟩⟨U+200B⟩⟨U+FEFF⟩⟨U+E0041⟩⟨U+D800⟩"
    )


def test_an_excerpt_keeps_both_ends_and_counts_the_omitted_characters():
    text = "".join(f"line {number}\n" for number in range(1000))
    excerpt = make_excerpt(text, 1000)
    assert text.startswith(excerpt.head) and text.endswith(excerpt.tail)
    assert len(excerpt.head) + len(excerpt.tail) + excerpt.omitted_chars == len(text)
    assert rendered_size(excerpt.head + excerpt.tail) <= 1000
    assert rendered_size("".join(make_excerpt("<" * 5000, 1000)[::2])) <= 1000
    assert make_excerpt("short", 1000) == ("short", 0, "")


def test_only_long_texts_are_shortened_and_all_together_fit_the_budget():
    sizes = [10, 20, 5000, 9000]
    cap = size_cap(sizes, 4030)
    assert cap == 2000
    assert sum(min(size, cap) for size in sizes) == 4030
    assert size_cap([10, 20], 4030) > 9000
