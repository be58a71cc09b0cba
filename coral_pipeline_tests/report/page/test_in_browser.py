"""The page in a real browser: hostile transcripts stay text, everything can be reached, nothing is lost on paper."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page

from coral_pipeline.report.page.page import report_page
from coral_pipeline.report.page.reading import Outputs, read_run
from coral_pipeline.settings import ReportSettings
from coral_pipeline_tests.axe import axe_script
from coral_pipeline_tests.browser import SCREENSHOTS, opened, sideways
from coral_pipeline_tests.report.page.runs import RUN, root_name, saying, write_root, write_selection

pytestmark = pytest.mark.slow

HOSTILE = (
    "</script><script>document.title = 'taken'; alert(1)</script><img src=x onerror=\"alert(2)\">"
    "<!-- <script> ]]> </pre></details></style><style>*{display:none}</style> &lt;b&gt; {{ 7 * 7 }} \x1b[31mred\x1b[0m "
    "\x00\x07\u202egnp.exe\u2069 \ud7ff \u2028 javascript:alert(3) `${alert(4)}`"
)
SHOWN = (
    "</script><script>document.title = 'taken'; alert(1)</script><img src=x onerror=\"alert(2)\">"
    "<!-- <script> ]]> </pre></details></style><style>*{display:none}</style> &lt;b&gt; {{ 7 * 7 }} red "
    "␀␇⟨U+202E⟩gnp.exe⟨U+2069⟩ \ud7ff ⟨U+2028⟩ javascript:alert(3) `${alert(4)}`"
)
UNFOLD = "document.querySelectorAll('details').forEach(each => each.open = true)"
MADE = datetime(2026, 5, 1, tzinfo=UTC)
LONG_LINE = "x" * 3_000_000
DIFF = f"""diff --git a/answer.py b/answer.py
index 1111111..2222222 100644
--- a/answer.py
+++ b/answer.py
@@ -1,2 +1,2 @@
 import this
-X = 1
+X = 2  # {HOSTILE}
diff --git a/weights.bin b/weights.bin
new file mode 100644
index 0000000..3333333
Binary files /dev/null and b/weights.bin differ
\\ Cut here: the diff is longer than 100000 bytes
"""


def _hostile(row: dict) -> dict:
    if row["edge_id"] == 1 and row["turn"] == 1 and row["role"] == "user":
        return saying(row, LONG_LINE)
    if row["role"] != "assistant":
        return saying(row, HOSTILE)
    call = {
        **row["content"][0],
        "type": "tool_call",
        "name": HOSTILE,
        "text": None,
        "arguments": f'{{"a": "{"b" * 500}"}}',
    }
    return {**row, "content": [*saying(row, HOSTILE)["content"], call]}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trees of which all texts are hostile, one that is not done."""
    output = tmp_path_factory.mktemp("output")
    write_selection(output, roots=3)
    for place in (0, 1):
        write_root(
            output,
            place,
            message=_hostile,
            turn=lambda row: {
                **row,
                "code_diff": DIFF,
                "feedback": HOSTILE,
                "status": HOSTILE,
                "commit_hash": "<b>" * 9,
            },
        )
    (output / "explored_trees" / RUN / root_name(2)).mkdir()
    path = output / "report.html"
    path.write_text(report_page(read_run(Outputs(output, RUN)), ReportSettings(), MADE), encoding="utf-8")
    return path


def rows(page: Page, tree: str = "#r0") -> Locator:
    return page.locator(f"{tree} .tree tbody tr")


def focused(page: Page) -> str:
    """Id, or text, of what has the focus."""
    said: str = page.evaluate("document.activeElement.id || document.activeElement.textContent")
    return said


def settled(page: Page, heading: str, tree: str = "#r0") -> Locator:
    """The details of a tree once they tell of this node."""
    page.locator(f"{tree} .details h4", has_text=heading).wait_for()
    return page.locator(f"{tree} .details")


def test_what_agents_wrote_stays_text(browser: Browser, file: Path) -> None:
    with opened(browser, file) as found:
        page = found.page
        for line in reversed(range(rows(page).count())):
            rows(page).nth(line).locator("a").click()
            page.evaluate(UNFOLD)
        rows(page).nth(1).locator("a").click()
        details = settled(page, "Node 1")
        page.evaluate(UNFOLD)
        details.locator(".message").first.wait_for()
        assert SHOWN in (details.locator(".message .text pre").first.text_content() or "")
        assert SHOWN in (details.locator(".feedback pre").first.text_content() or "")
        assert f"Calls {SHOWN}" in (details.locator(".tool_call .label").first.text_content() or "")
        assert SHOWN in (details.locator("ins.ins").first.text_content() or "")
        assert page.title() == f"{RUN}: CORAL pipeline report"
        assert page.locator("img").count() == 0
        assert found.console == [] and found.requests == [file.as_uri()]


def test_a_diff_is_shown_by_file_with_what_was_added_and_removed(browser: Browser, file: Path) -> None:
    """Each turn's own: the second says the same as the first, so no one diff can be made of the two."""
    with opened(browser, file) as found:
        rows(found.page).nth(1).locator("a").click()
        details = settled(found.page, "Node 1")
        assert details.locator(".turn .caption").all_text_contents() == [
            "Code diff against the root",
            "Code diff against turn 1",
        ]
        diff = details.locator(".diff").first
        assert [line.strip() for line in diff.locator(".file").all_text_contents()] == ["answer.py", "weights.bin"]
        assert diff.locator("del").all_text_contents() == ["-X = 1\n"]
        assert diff.locator(".head").all_text_contents() == [
            "new file mode 100644\n",
            "Binary files /dev/null and b/weights.bin differ\n",
        ]
        assert diff.locator(".note").text_content() == "\\ Cut here: the diff is longer than 100000 bytes\n"


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree in which only the second turns made a commit, of two files and a diff that has to be cut."""
    output = tmp_path_factory.mktemp("long")
    changes = "".join(f" same {n}\n-old {n}\n+new {n}\n" for n in range(2000))
    head = "diff --git a/{0} b/{0}\nindex 1..2 100644\n--- a/{0}\n+++ b/{0}\n"
    last = head.format("b.py") + "@@ -1 +1 @@\n-last old\n+last new\n"
    diff = head.format("a.py") + "@@ -1,4000 +1,4000 @@\n" + changes + last
    write_selection(output, roots=1)
    write_root(
        output,
        turn=lambda row: {**row, "commit_hash": "0" * 40, "code_diff": diff} if row["turn"] == 2 else row,
    )
    path = output / "report.html"
    path.write_text(report_page(read_run(Outputs(output, RUN)), ReportSettings(), MADE), encoding="utf-8")
    return path


def test_what_follows_the_missing_middle_of_a_diff_is_a_diff_as_well(browser: Browser, long: Path) -> None:
    """Only of the line that it begins in the middle of cannot be said what became of it."""
    with opened(browser, long) as found:
        rows(found.page).nth(1).locator("a").click()
        diff = settled(found.page, "Node 1").locator(".diff").first
        assert "characters are left out here" in (diff.locator(".cut").text_content() or "")
        tail = diff.locator("pre").last
        _, *lines = (tail.text_content() or "").splitlines()
        first = lines[: lines.index("b.py")]
        assert len(first) > 400
        assert tail.locator("ins").all_text_contents() == [
            *(f"{line}\n" for line in first if line.startswith("+")),
            "+last new\n",
        ]
        assert tail.locator("del").count() == sum(line.startswith("-") for line in first) + 1
        assert tail.locator(".same").count() == sum(line.startswith(" ") for line in first) + 1
        assert tail.locator(".head").count() == 0 and tail.locator(".file").count() == 1


def test_a_diff_is_named_by_what_it_is_against(browser: Browser, long: Path) -> None:
    """The first turn made no commit, so the second's is against the parent, and is all that the edge changed."""
    with opened(browser, long) as found:
        rows(found.page).nth(2).locator("a").click()
        details = settled(found.page, "Node 4")
        first, second = details.locator(".turn").all()
        assert first.get_by_text("No commit was graded, so there is no code diff.").is_visible()
        assert second.locator("summary").first.text_content() == "Code diff against node 1"
        assert details.locator("h5", has_text="Code diff").text_content() == "Code diff against node 1"


def test_a_line_of_megabytes_is_cut_and_says_where_all_of_it_is(browser: Browser, file: Path) -> None:
    assert file.stat().st_size < 1_000_000
    with opened(browser, file, width=400) as found:
        rows(found.page).nth(5).locator("a").click()
        details = settled(found.page, "Node 2")
        details.locator(".transcript summary").first.click()
        details.locator(".message summary").first.click()
        cut = details.locator(".message .cut").first.text_content() or ""
        assert cut.startswith("2,980,000 characters are left out here")
        assert f"explored_trees/{RUN}/{root_name(0)}/messages.parquet, message n2.t1.user" in cut
        assert sideways(found.page) == 0


def test_a_pruned_fork_says_why(browser: Browser, file: Path) -> None:
    with opened(browser, file) as found:
        found.page.locator("#r0 .tree .pruned a").first.click()
        details = settled(found.page, "Pruned fork of node 1")
        said = details.text_content() or ""
        assert "It failed: 0 of 10 tool calls failed, a rate of 0 where 0.3 is allowed. So it made no child." in said
        rows(found.page).nth(5).locator("a").click()
        said = settled(found.page, "Node 2").text_content() or ""
        assert "It was kept all the same: the second try of a direction" in said


def test_the_tree_is_walked_with_the_keyboard_alone(browser: Browser, file: Path) -> None:
    """Lines: root, 1, 4, 5, pruned fork, 2, pruned fork, 3; see ``runs.NODES``."""
    with opened(browser, file) as found:
        page, press = found.page, found.page.keyboard.press
        settled(page, "Node 4")  # the best path's leaf is shown first
        page.locator(".picker a").first.focus()
        for _ in range(20):
            press("Tab")
            if focused(page) == "r0-n4":
                break
        assert focused(page) == "r0-n4", "the chosen line can be reached by Tab, and is the only one"
        press("ArrowDown")
        settled(page, "Node 5")
        press("ArrowLeft")
        settled(page, "Node 1")
        assert page.evaluate("location.hash") == "#r0-n1"
        press("ArrowLeft")  # closed
        assert rows(page).nth(1).get_attribute("aria-expanded") == "false"
        assert [rows(page).nth(n).is_visible() for n in range(8)] == [True, True, False, False, False, True, True, True]
        press("ArrowDown")
        settled(page, "Node 2")
        press("ArrowUp")
        press("ArrowRight")  # open again
        assert rows(page).nth(2).is_visible()
        press("ArrowRight")
        settled(page, "Node 4")
        press("End")
        settled(page, "Node 3")
        press("Home")
        settled(page, "Root")
        press("ArrowDown")
        settled(page, "Node 1")
        press("Enter")
        page.wait_for_function("document.activeElement.tagName === 'H4'")
        press("Escape")
        assert focused(page) == "r0-n1"
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", "the focus is seen"


def test_the_address_names_the_node(browser: Browser, file: Path) -> None:
    with opened(browser, file) as found:
        found.page.goto(f"{file.as_uri()}#r1-n5")
        found.page.reload()
        settled(found.page, "Node 5", "#r1")
        assert not found.page.locator("#r0").is_visible()
        found.page.locator("#paths a", has_text="4").first.click()
        settled(found.page, "Node 4", "#r0")
        found.page.go_back()
        settled(found.page, "Node 5", "#r1")
        found.page.locator("#r1 svg [data-node='2']").click()
        settled(found.page, "Node 2", "#r1")
        found.page.locator(".picker a").nth(2).click()
        assert found.page.locator("#r2").get_by_text("not finished").is_visible()


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_anyone_can_read_it(browser: Browser, file: Path, width: int, scheme: str) -> None:
    """Deque's rules for WCAG 2.2 AA and their best practices, with everything unfolded; nothing sticks out sideways."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with opened(browser, file, width=width, color_scheme=scheme) as found:
        page = found.page
        settled(page, "Node 4")
        page.screenshot(path=SCREENSHOTS / f"report small {width} {scheme}.png")
        page.evaluate(UNFOLD)
        page.locator("#r0 .message").first.wait_for()
        page.evaluate(axe_script())
        result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        problems = [(each["id"], [node["html"][:200] for node in each["nodes"]][:3]) for each in result["violations"]]
        assert problems == []
        assert sideways(page) == 0
        assert found.console == []


def test_on_paper_every_tree_is_there(browser: Browser, file: Path) -> None:
    with opened(browser, file) as found:
        settled(found.page, "Node 4")
        found.page.emulate_media(media="print")
        assert all(found.page.locator(f"#r{place} h3").is_visible() for place in range(3))
        assert found.page.locator("#r1 .tree").is_visible() and not found.page.locator(".picker").is_visible()
        assert found.page.pdf()[:4] == b"%PDF"


def test_without_scripts_all_but_the_details_is_there(browser: Browser, file: Path) -> None:
    with opened(browser, file, java_script_enabled=False) as found:
        assert found.page.get_by_text("Diffs and transcripts need JavaScript").is_visible()
        assert all(found.page.locator(f"#r{place} h3").is_visible() for place in range(3))
        assert found.page.locator("#r1 .tree tbody tr").count() == 8
