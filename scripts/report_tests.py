#!/usr/bin/env python3
"""Tests the report's page in headless Chromium, as a reader uses it: filters, order, zoom, the address that keeps all that, keyboard, colours.

Usage: report_tests.py [--fanin PATH] [--pictures DIR]

Simulates a small plan with FANIN (target/debug/fanin), and opens what it writes. Chromium is Debian's; Playwright, which drives it, comes from PyPI
into target/report. `--pictures` keeps screenshots and a printed page. Exits with 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import packages

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / "target" / "report"
PLAYWRIGHT = "1.65.2"
NAMES = ("chromium", "chromium-browser", "google-chrome")
PLAN = """
[network]
shape = "fat-tree"
leaves = 4
hosts_per_leaf = 4
spines = 2
rate = "100Gb/s"
latency = "300ns"

[[jobs]]
system = "ring"
workers = 8
placement = "random"
message = "16KiB"

[[series]]
name = "ring"
set = { "jobs.0.system" = "ring" }

[[series]]
name = "tree"
set = { "jobs.0.system" = "tree" }

[[series]]
name = "Canary"
set = { "jobs.0.system" = "canary" }

[sweep]
"jobs.0.message" = ["16KiB", "64KiB"]

[run]
repetitions = 2
memory_interval = "1us"
series_interval = "1us"
"""


def browser() -> str | None:
    """Chromium, where it is there."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def obstacle() -> str | None:
    """Why the page cannot be tested here, or None; installs Chromium where that is allowed."""
    return packages.missing(["chromium"], lambda: browser() is not None)


def in_environment() -> bool:
    """Whether Playwright is there; otherwise runs this program once more where it is."""
    if Path(sys.prefix) == ENVIRONMENT:
        return True
    python, mark = ENVIRONMENT / "bin" / "python", ENVIRONMENT / f"playwright-{PLAYWRIGHT}"
    if not mark.exists():
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"playwright=={PLAYWRIGHT}"], check=True)
        mark.touch()
    os.execv(python, [str(python), *sys.argv])


def check(holds: bool, what: str) -> None:
    """Ends the test where something does not hold."""
    if not holds:
        raise AssertionError(what)


class Reader:
    """Who reads the page."""

    def __init__(self, browser: Any, address: str) -> None:
        self.browser, self.address = browser, address
        self.said: list[str] = []

    def open(self, state: str = "", dark: bool = False, width: int = 1280, scripts: bool = True) -> Any:
        """The page with this state in its address."""
        context = self.browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", java_script_enabled=scripts, accept_downloads=True
        )
        page = context.new_page()
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        page.on("request", lambda request: self.said.append(f"asks for {request.url}") if not request.url.startswith(("file:", "blob:")) else None)
        page.goto(self.address + (f"#{state}" if state else ""))
        if scripts:
            page.wait_for_selector("html[data-ready]", timeout=20000)
        return page


def rows(page: Any) -> list[str]:
    """What the table of results shows: series, size and completion time of each row."""
    shown = page.locator("table[data-table=results-results] tbody tr:visible").all()
    return [" ".join(row.locator("td").all_inner_texts()[:3]) for row in shown]


def state(page: Any) -> str:
    """What stands in the address."""
    return page.evaluate("decodeURIComponent(location.hash)")


def tables(reader: Reader) -> None:
    """Tables sort and filter, and the address brings that back."""
    page = reader.open()
    check(len(rows(page)) == 6, f"6 rows at first: {rows(page)}")
    heads = page.locator("table[data-table=results-results] th")
    heads.nth(2).locator("button").click()
    times = [float(row.split()[2]) for row in rows(page)]
    check(times == sorted(times) and heads.nth(2).get_attribute("aria-sort") == "ascending", f"sorted upwards: {times}")
    heads.nth(2).locator("button").click()
    times = [float(row.split()[2]) for row in rows(page)]
    check(times == sorted(times, reverse=True), f"sorted downwards: {times}")
    page.get_by_label("Only rows of series").select_option("tree")
    check([row.split()[0] for row in rows(page)] == ["tree"] * 2, f"rows of trees: {rows(page)}")
    page.get_by_label("Filter rows by text").first.fill("64kib")
    seen = rows(page)
    check(len(seen) == 1 and seen[0].startswith("tree 64KiB"), f"one row: {seen}")
    again = reader.open(state(page).lstrip("#"))
    check(rows(again) == seen, f"the address brings it back: {state(page)}, {rows(again)}")
    # Back at the beginning nothing is in the address.
    page.get_by_label("Filter rows by text").first.fill("")
    page.get_by_label("Only rows of series").select_option("")
    heads.nth(2).locator("button").click()
    check(state(page) == "" and len(rows(page)) == 6, f"nothing is left in {state(page)}")


def figures(reader: Reader) -> None:
    """Series toggle, plots zoom, and their data can be saved."""
    page = reader.open()
    figure = page.locator("figure", has=page.locator("strong", has_text="Goodput").first).first
    canvas = figure.locator("canvas")
    before = canvas.evaluate("canvas => canvas.toDataURL()")
    figure.locator(".legend button").first.click()
    check(figure.locator(".legend button").first.get_attribute("aria-pressed") == "false", "a series is off")
    page.wait_for_timeout(100)
    check(canvas.evaluate("canvas => canvas.toDataURL()") != before, "the plot has changed")
    figure.get_by_label("Zoom in").click()
    kept = state(page)
    check("results.goodput.off=0" in kept and "results.goodput.zoom=" in kept, f"the address has both: {kept}")
    page.wait_for_timeout(100)
    zoomed = canvas.evaluate("canvas => canvas.toDataURL()")
    again = reader.open(kept.lstrip("#"))
    again.wait_for_timeout(200)
    check(again.locator("figure canvas").nth(1).evaluate("canvas => canvas.toDataURL()") == zoomed, "the address brings the same plot back")
    box = figure.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 150, steps=4)
    page.mouse.up()
    check(state(page) != kept, "dragging zooms")
    figure.locator(".u-over").dblclick()
    check("zoom" not in state(page), f"a double click shows all: {state(page)}")
    with page.expect_download() as saved:
        figure.get_by_role("button", name="CSV").click()
    text = Path(saved.value.path()).read_text().splitlines()
    check(text[0] == "series,x,goodput (Gb/s),lowest,highest" and len(text) == 7, f"the figure's data: {text}")
    figure.locator("summary").click()
    figure.locator("details tbody tr").nth(5).wait_for(timeout=5000)


def network(reader: Reader) -> None:
    """The network goes through time, and a block's packets come one by one."""
    page = reader.open()
    part, lines = page.locator("#results-network"), "#results-network svg line"
    first = [line.get_attribute("stroke") for line in page.locator(lines).all()]
    slider = part.get_by_label("Time", exact=True)
    slider.focus()
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    check([line.get_attribute("stroke") for line in page.locator(lines).all()] != first, "links change their colours")
    check("results.net.t=6" in state(page), f"the time is in the address: {state(page)}")
    part.get_by_role("button", name="Play").click()
    page.wait_for_timeout(600)
    part.get_by_role("button", name="Pause").click()
    check(int(slider.input_value()) > 6, "it plays")
    check(part.locator("svg[role=img]").get_attribute("aria-label").startswith("The network from"), "the picture says what it shows")
    tree = page.locator("#results-tree")
    tree.get_by_label("Which run").select_option(label="series Canary, jobs.0.message 16KiB")
    steps = tree.get_by_label("Packet", exact=True)
    check(tree.locator("svg g").count() > 10 and tree.locator("ol li").count() == tree.locator("svg g").count(), "packets are drawn and listed")
    steps.focus()
    page.keyboard.press("Home")
    check(tree.locator("svg g[visibility=visible]").count() == 0, "nothing before the first packet")
    page.keyboard.press("ArrowRight")
    check(tree.locator("svg g[visibility=visible]").count() == 1 and tree.locator("li[aria-current=step]").count() == 1, "one packet")


def keyboard(reader: Reader) -> None:
    """The tabulator reaches every control, and each has a name and shows that it has the focus."""
    page = reader.open()
    controls = "button, input, select, summary, [tabindex='0']"
    every = page.evaluate(f"[...document.querySelectorAll(\"{controls}\")].filter((one) => one.checkVisibility() && !one.hidden).length")
    reached = 0
    for _ in range(every + 5):
        page.keyboard.press("Tab")
        about = page.evaluate(
            "() => { const one = document.activeElement; if (one === document.body || one.dataset.seen) return null; one.dataset.seen = 1;"
            " const named = one.getAttribute('aria-label') || one.textContent.trim() || (one.labels && one.labels.length);"
            " return [Boolean(named), getComputedStyle(one).outlineStyle, one.outerHTML.slice(0, 80)]; }"
        )
        if about is None:
            continue
        reached += 1
        check(about[0] and about[1] != "none", f"it has a name and shows the focus: {about[2]}")
    check(reached >= every, f"the tabulator reaches {reached} of {every} controls")


def looks(reader: Reader, pictures: Path | None) -> None:
    """Light, dark, on a telephone, printed, without scripts."""
    background = "getComputedStyle(document.body).backgroundColor"
    light, dark = reader.open(), reader.open(dark=True)
    check(light.evaluate(background) == "rgb(255, 255, 255)" and dark.evaluate(background) != "rgb(255, 255, 255)", "dark where the system is")
    light.get_by_label("Colours", exact=True).select_option("dark")
    check(light.evaluate(background) == dark.evaluate(background) and "theme=dark" in state(light), "dark by choice")
    phone = reader.open(width=390)
    wide = phone.evaluate("document.documentElement.scrollWidth")
    check(wide <= 390, f"nothing sticks out of a telephone: {wide} pixels")
    bare = reader.open(scripts=False)
    check(bare.locator("figure svg").first.is_visible() and bare.locator("table").first.is_visible(), "pictures and tables without scripts")
    check(not bare.locator("#theme").is_visible(), "no control that does nothing")
    light.emulate_media(media="print")
    check(
        light.locator("figure .svg svg").first.is_visible() and not light.locator("figure canvas").first.is_visible(),
        "pictures of print are drawn as lines",
    )
    light.emulate_media(media="screen")
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        for name, page in {"dark": dark, "telephone": phone, "light": reader.open()}.items():
            page.screenshot(path=pictures / f"{name}.png", full_page=True)
        light.pdf(path=pictures / "print.pdf", format="A4", print_background=True)


def run(fanin: Path, pictures: Path | None) -> None:
    """Simulates, and tests the page."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        plan, out = Path(folder) / "plan.toml", Path(folder) / "out"
        plan.write_text(PLAN)
        subprocess.run([fanin, "sim", plan, "--out", out], check=True, stdout=subprocess.DEVNULL)
        with sync_playwright() as playwright:
            # Root may not use Chromium's own sandbox; the page is our own.
            chromium = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
            reader = Reader(chromium, (out / "report.html").as_uri())
            tests: list[Callable[[Reader], None]] = [tables, figures, network, keyboard, lambda reader: looks(reader, pictures)]
            for test in tests:
                test(reader)
                check(not reader.said, f"the console is silent, and nothing is asked for: {reader.said}")
            chromium.close()
    print("the report's page: tables, figures, network, keyboard and looks are right")


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fanin", type=Path, default=ROOT / "target/debug/fanin", metavar="PATH", help="the program")
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="keep screenshots there")
    options = parser.parse_args(arguments)
    reason = obstacle()
    if reason is not None:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    in_environment()
    try:
        run(options.fanin.resolve(), options.pictures)
    except AssertionError as error:
        print(f"error: expected that {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
