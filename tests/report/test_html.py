"""report.html from a store's events: what is in it, that it is the same each time, and that a browser shows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from layoutlab.errors import DeviceError
from layoutlab.report.comparison import Comparison, compare
from layoutlab.report.files import write_page
from layoutlab.report.html.details import Details, find_details, spec_yaml
from layoutlab.report.html.page import embedded, report_html
from layoutlab.report.html.verdict import verdict
from layoutlab.report.pairs import Pair
from layoutlab.report.table import json_table
from layoutlab.spec.load import load_spec
from layoutlab.store import Store
from layoutlab.tuning_progress import Progress, find_progress, keep_progress

from ..conftest import ROOT
from . import chromium
from .test_table import SPEC, record

NASTY = "</script><script>alert(1)</script><img src=http://example.org/x.png> & $x$"
BYTES_LIMIT = 1 << 20


def keep(store: Store, folder: str, points: list[tuple[int, int, float]]) -> None:
    for done, tuned, best_us in points:
        event = {"done": done, "failed": 0, "tuned": tuned, "tasks": 2, "best_us": best_us, "total": 100}
        keep_progress(store, folder, folder, event)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A store of a run with everything that can be kept without running anything."""
    folder = tmp_path_factory.mktemp("html")
    with Store(folder) as store:
        record(store, SPEC.model_copy(update={"description": NASTY}))
        # As `uses` of a run has it: the name of the folder of the variant's records.
        for event in store.events:
            if event["kind"] == "uses":
                event["folder"] = event["variant"]
        keep(store, "nhwc", [(8, 1, 50.0), (16, 2, 90.0), (32, 2, 70.0), (100, 2, 60.0)])
        keep(store, "nchw8c", [(100, 2, 40.0)])
    lines = [json.dumps(event) + "\n" for event in store.events]
    (folder / "events.jsonl").write_text("".join(lines))
    return folder


def found(folder: Path) -> tuple[Comparison, Details]:
    with Store(folder) as store:
        return compare(store), find_details(store)


@pytest.fixture(scope="module")
def page(folder) -> str:
    return report_html(*found(folder))


class Elements(HTMLParser):
    """All elements with their attributes, and the text of each element by its name."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.all.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append((self.all[-1][0] if self.all else "", data))

    def of(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.all if tag in tags]


def test_the_same_events_give_the_same_page_in_another_process(folder, page, tmp_path):
    program = (
        "import sys; from pathlib import Path; from layoutlab.store import Store\n"
        "from layoutlab.report.comparison import compare; from layoutlab.report.html.details import find_details\n"
        "from layoutlab.report.html.page import report_html\n"
        "with Store(Path(sys.argv[1])) as store:\n"
        "    sys.stdout.write(report_html(compare(store), find_details(store)))\n"
    )
    (tmp_path / "matplotlibrc").write_text("axes.grid: True\nlines.linewidth: 9\n")
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        env={**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "MATPLOTLIBRC": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == page, done.stderr


def test_nothing_in_a_run_becomes_markup(folder, page):
    elements = Elements(page)
    assert len(elements.of("script")) == 1
    assert elements.of("img", "link", "iframe") == []
    assert ("p", NASTY) in elements.texts
    (data,) = [text for tag, text in elements.texts if tag == "script" and text.strip()]
    assert json.loads(data) == json.loads(json_table(found(folder)[0]))
    assert not set("<>&") & set(data)


def test_embedded_json_stays_the_same_data():
    data = {"x": [NASTY, "<!--", "\u2028", 1.5, None]}
    text = str(embedded(data))
    assert json.loads(text) == data
    assert not set("<>&\u2028") & set(text)


def test_the_page_refers_to_nothing_outside_of_it(page):
    elements = Elements(page)
    ids = [attributes["id"] for _, attributes in elements.all if "id" in attributes]
    assert len(ids) == len(set(ids))
    refers = [value for _, attributes in elements.all for name, value in attributes.items() if name.endswith("href")]
    refers += [attributes["src"] for _, attributes in elements.all if "src" in attributes]
    assert {value[0] for value in refers} == {"#"}
    named = [attributes.get("aria-labelledby") for attributes in elements.of("svg", "section")]
    assert {value[1:] for value in refers} | set(named) <= set(ids)
    assert "@import" not in page and "url(http" not in page and len(page.encode()) < BYTES_LIMIT


def test_each_plot_says_in_words_what_it_shows(page):
    elements = Elements(page)
    titles = [text for tag, text in elements.texts if tag == "title" and text.strip()]
    assert titles == [
        "two_layouts: data layouts compared",
        "Time of one inference. nhwc: 6.016 ms; nchw8c: 3.008 ms; untuned: 60.150 ms; tflite: 4.010 ms",
        "Latency as a multiple of TFLite's. nhwc: 1.50, slower; nchw8c: 0.75, faster; untuned: 15.00, slower",
        "Rounds as deviations from each row's median. nhwc: median absolute deviation 0.1 %; "
        "nchw8c: median absolute deviation 0.1 %; untuned: median absolute deviation 0.1 %; "
        "tflite: median absolute deviation 0.1 %",
        "Best sum of ops over trials. nhwc: from 0.090 ms at 16 trials to 0.060 ms at 100",
    ]


def test_what_there_is_not_is_said(page):
    assert "No profile was made of this run." in page
    assert "nchw8c: no curve, for how its tuning went was not kept" in page


VERDICT = (
    "nchw8c (0.75x) is faster than TFLite; nhwc (1.50x) is slower than TFLite. Of the layouts, nchw8c takes the least "
    "time, 3.008 ms, and the others are shown to be slower. wrong gives wrong outputs. broken failed."
)


def test_the_verdict(folder):
    assert verdict(found(folder)[0]) == VERDICT


def test_a_verdict_of_layouts_that_are_alike(folder):
    comparison = found(folder)[0]
    ratio = replace(comparison.pairs[0].ratio, value=1.0, verdict="no difference shown")
    pairs = (Pair(variant="nhwc", other="nchw8c", ratio=ratio),)
    rows = tuple(replace(row, ratio=comparison.rows[1].ratio) if row.name == "nhwc" else row for row in comparison.rows)
    alike = replace(comparison, rows=rows[:2], pairs=pairs, measure={**comparison.measure, "rounds": 3})
    assert verdict(alike) == (
        "nhwc (0.75x) and nchw8c (0.75x) are faster than TFLite. Of the layouts, nchw8c takes the least time, "
        "3.008 ms, but no difference is shown between it and nhwc. With 3 rounds only, this is for trying out."
    )


def test_a_verdict_without_a_tuned_row(folder):
    comparison = found(folder)[0]
    untuned = tuple(row for row in comparison.rows if row.name in ("untuned", "tflite"))
    assert verdict(replace(comparison, rows=untuned)) == (
        "No tuned variant has a latency, so nothing is said about layouts."
    )


def test_progress_begins_anew_where_trials_are_gone(tmp_path):
    with Store(tmp_path) as store:
        keep(store, "a", [(8, 1, 5.0), (16, 2, 9.0), (16, 2, 9.0), (4, 1, 6.0), (8, 2, 8.0)])
        keep(store, "b", [(8, 2, 1.0)])
        assert find_progress(store, "a") == (
            Progress(trials=4, failed=0, tuned=1, tasks=2, best_us=6.0),
            Progress(trials=8, failed=0, tuned=2, tasks=2, best_us=8.0),
        )
        assert len(store.all("progress", folder="a")) == 4, "what is the same is kept once"


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_spec_on_the_page_is_the_spec(path, tmp_path):
    spec = load_spec(path).spec
    (tmp_path / "again.yaml").write_text(spec_yaml(spec))
    assert load_spec(tmp_path / "again.yaml").spec == spec


def test_a_run_in_which_every_variant_failed_has_a_page(tmp_path):
    with Store(tmp_path) as store:
        record(store)
        for name in ("nhwc", "nchw8c", "untuned"):
            store.append("failed", variant=name, stage="run", cause="it crashed", log="x.log", exit_code=1)
        # As a run has it: the variant failed before its rounds.
        store.events.append(store.events.pop(next(i for i, e in enumerate(store.events) if e["kind"] == "finished")))
        comparison, details = compare(store), find_details(store)
    assert verdict(comparison) == (
        "No tuned variant has a latency, so nothing is said about layouts. wrong gives wrong outputs. "
        "nhwc, nchw8c, broken and untuned failed."
    )
    page = report_html(comparison, details)
    assert "nhwc: run failed: it crashed (log: x.log)" in page
    assert "Time of one inference. tflite: 4.010 ms" in page


WIDTHS = {"phone": (390, 844), "desktop": (1280, 900)}
BACKGROUNDS = {"light": (255, 255, 255), "dark": (20, 23, 27)}


def look(browser: chromium.Chromium, folder: Path, scratch: Path) -> None:
    """Open the page as on a phone and on a desktop, light and dark."""
    write_page(*found(folder), scratch)
    with chromium.opened(browser, scratch) as page:
        for width, height in WIDTHS.values():
            for scheme, background in BACKGROUNDS.items():
                page.show(scratch / "report.html", width, height, scheme)
                assert page.evaluate("document.documentElement.scrollWidth") == width, "nothing is wider than the page"
                shot = page.screenshot()
                assert shot.size == (width, height)
                assert shot.getpixel((2, 2)) == background
                colour = page.evaluate("getComputedStyle(document.querySelector('svg text')).fill")
                assert colour == page.evaluate("getComputedStyle(document.body).color")
                drawn = page.evaluate("[...document.querySelectorAll('.plot svg')].map(svg => svg.clientWidth)")
                assert len(drawn) == 4 and min(drawn) > 300
                (least,) = {
                    page.evaluate(
                        "Math.min(...[...document.querySelectorAll('.plot svg text')]"
                        ".map(text => text.getBoundingClientRect().height))"
                    )
                }
                assert least >= 8, "text in plots can be read"
        files = {url for url in page.requests if not url.startswith("about:")}
        assert files == {(scratch / "report.html").as_uri()}
        assert page.complaints == []


def test_a_browser_shows_the_page(folder, tmp_path):
    """In the Chromium that is installed, or in Debian's, downloaded once without root."""
    try:
        browser = chromium.find() or chromium.download()
    except DeviceError as error:
        pytest.skip(f"no Chromium is installed, and none can be had: {error}")
    look(browser, folder, tmp_path)


@pytest.mark.slow
def test_a_downloaded_browser_shows_the_page(folder, tmp_path):
    look(chromium.downloaded() or chromium.download(), folder, tmp_path)
