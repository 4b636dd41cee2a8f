"""Checks every link of the site that was built: those within it lead to a file and an anchor of it, all others are well-formed addresses.
Nothing is asked of the network. Python's standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Names of hosts: letters, digits and hyphens between dots, at least two of them.
HOST = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+", re.IGNORECASE)


class Page(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Takes what the tag says."""
        given = dict(attrs)
        self.anchors.update(value for name in ("id", "name") if (value := given.get(name)))
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        source = given.get("src") or (given.get("href") if tag == "link" and given.get("rel") != "canonical" else None)
        if source:
            self.loads.append(source)


def parsed(path: Path) -> Page:
    """A page that was built."""
    page = Page()
    page.feed(path.read_text())
    return page


def problem_of_address(address: str) -> str | None:
    """What is wrong with an address of another site, or None."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError as error:
        return str(error)
    if parts.scheme == "mailto":
        return None if re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+", parts.path) else "expected name@host"
    if parts.scheme not in ("http", "https"):
        return "expected http, https or mailto"
    if re.search(r"\s", address):
        return "it has a blank"
    return None if HOST.fullmatch(host) else "expected a host's name"


def problems(site: Path) -> Iterator[str]:
    """What is wrong with the links of a site, a line each."""
    pages = {path.resolve(): parsed(path) for path in sorted(site.rglob("*.html"))}
    root = site.resolve()
    for path, page in pages.items():
        where = path.relative_to(root).as_posix()
        for target in page.loads:
            if urlsplit(target).scheme in ("http", "https") or target.startswith("//"):
                yield f"{where}: loads {target} from elsewhere"
        for target in [*page.links, *page.loads]:
            wrong = wrong_with(target, path, root, pages)
            if wrong is not None:
                yield f"{where}: {target}: {wrong}"


def wrong_with(target: str, path: Path, root: Path, pages: dict[Path, Page]) -> str | None:
    """What is wrong with a link of a page, or None."""
    if re.match(r"[a-z][a-z0-9+.-]*:", target, re.IGNORECASE) or target.startswith("//"):
        return problem_of_address(target)
    file, _, anchor = target.partition("#")
    file = unquote(file.partition("?")[0])
    # The page of errors is served at any address, so its links begin at the root.
    base = root if file.startswith("/") else path.parent
    to = (base / file.lstrip("/")).resolve() if file else path
    if to.is_dir():
        to /= "index.html"
    if not to.is_file():
        return "there is no such file"
    if anchor and to in pages and unquote(anchor) not in pages[to].anchors and not anchor.startswith("__"):
        return "there is no such place on the page"
    return None
