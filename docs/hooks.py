"""How mkdocs makes the site of the repository's documents: where each document stands, what is generated, and where links lead."""

from __future__ import annotations

import os
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import docs_pages  # noqa: E402
import docs_pictures  # noqa: E402

#: Documents outside of the folder of the site, and the pages that they become.
ELSEWHERE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "reference/plans.md",
    "experiments/README.md": "papers/index.md",
    "crates/check/README.md": "reference/check.md",
}

#: Sources, and the pages that are made from them: a link to one leads to the other.
MADE = {"python/fanin/plans.py": "reference/keys.md", "crates/cli/src/main.rs": "reference/cli.md"}

#: A paragraph that begins with the plan of the figure above it.
PLAN = re.compile(r"^Plan: \[`([a-z]+)\.toml`\]\(plans/\1\.toml\).*(?:\n.+)*", re.MULTILINE)
MARKER = re.compile(r"<!-- generated: ([a-z]+)(?: ([a-z0-9]+))?(?: ([a-z0-9]+))? -->")
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")


class Site:
    """Which document is which page, and what pages are made from."""

    def __init__(self, config: MkDocsConfig) -> None:
        self.sources = docs_pages.Sources(ROOT)
        self.repository = str(config.repo_url).rstrip("/")
        self.pages = dict(ELSEWHERE)
        for readme in sorted((ROOT / "experiments").rglob("README.md")):
            parts = readme.relative_to(ROOT / "experiments").parts[:-1]
            if parts:
                name = "/".join(parts) if len(parts) > 1 else f"{parts[0]}/index"
                self.pages[readme.relative_to(ROOT).as_posix()] = f"papers/{name}.md"
        for picture in sorted((ROOT / "experiments").rglob("*.svg")):
            self.pages[picture.relative_to(ROOT).as_posix()] = f"papers/{picture.relative_to(ROOT / 'experiments').as_posix()}"
        for document in (ROOT / "docs").rglob("*"):
            if document.is_file():
                self.pages[document.relative_to(ROOT).as_posix()] = document.relative_to(ROOT / "docs").as_posix()
        self.documents = {page: document for document, page in self.pages.items()}

    def link(self, target: str, page: str) -> str:
        """Where a link of a document leads on the site: to a page of it, or to the file in the repository."""
        if "://" in target or target.startswith(("#", "mailto:")):
            return target
        path, hash_, anchor = target.partition("#")
        document = self.documents.get(page, f"docs/{page}")
        resolved = posixpath.normpath(posixpath.join(posixpath.dirname(document), path))
        known = MADE.get(resolved) or self.pages.get(resolved) or self.pages.get(f"{resolved}/README.md")
        if known is not None and not known.endswith((".toml", ".py", ".txt")):
            return posixpath.relpath(known, posixpath.dirname(page) or ".") + hash_ + anchor
        if (ROOT / resolved).exists():
            kind = "tree" if (ROOT / resolved).is_dir() else "blob"
            return f"{self.repository}/{kind}/main/{resolved}{hash_}{anchor}"
        return target

    def links(self, text: str, page: str) -> str:
        """A document with links that lead somewhere on the site; code stays as it is."""
        lines, is_code = [], False
        for line in text.splitlines():
            is_code ^= line.startswith("```")
            lines.append(line if is_code else LINK.sub(lambda match: self.link(match[1], page), line))
        return "\n".join(lines) + "\n"

    def plan(self, match: re.Match[str]) -> str:
        """A paragraph that names a plan, with the plan below it."""
        plan = (ROOT / "docs" / "plans" / f"{match[1]}.toml").read_text()
        lines = "".join(f"    {line}\n" if line else "\n" for line in ["```toml", *plan.strip().splitlines(), "```"])
        return f'{match[0]}\n\n??? example "{match[1]}.toml"\n\n{lines}'

    def generated(self, what: str, *which: str | None) -> str:
        """What stands in place of a marker."""
        match [what, *(word for word in which if word is not None)]:
            case ["systems"]:
                return self.sources.systems_table()
            case ["claims", system, paper] if (ROOT / "experiments" / paper).is_dir():
                return self.sources.claims(system, paper)
            case ["parameters" | "claims" | "clauses", system]:
                return str(getattr(self.sources, what)(system))
            case words:
                expected = "systems, parameters, claims or clauses with a system, or claims with a system and a folder of experiments"
                raise ValueError(f"<!-- generated: {' '.join(words)} -->: expected {expected}")


SITE: Site | None = None


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Reads the sources, and completes the navigation."""
    global SITE
    SITE = Site(config)
    config.nav = navigation(config.nav or [])
    return config


def navigation(items: list[Any]) -> list[Any]:
    """The navigation without pages that are not there yet, and with all systems, papers and figures."""
    assert SITE is not None
    known = {*SITE.documents, "metrics.md", "reference/cli.md", "reference/keys.md", "reference/results.md"}
    kept: list[Any] = []
    for item in items:
        if item == {"Papers": None} or item == "Papers":
            kept.append({"Papers": papers(SITE)})
        elif item == {"Systems": None} or item == "Systems":
            pages = [{name: f"systems/{name}.md"} for name in SITE.sources.systems()]
            kept.append({"Systems": ["systems/index.md", *pages]})
        elif isinstance(item, dict):
            (title, inner), *_ = item.items()
            if isinstance(inner, list):
                kept.append({title: navigation(inner)})
            elif inner in known or title != "Your own system":
                kept.append(item)
        else:
            kept.append(item)
    return kept


def papers(site: Site) -> list[Any]:
    """The rooms of the papers: each with its page, then its figures."""
    rooms: list[Any] = ["papers/index.md"]
    for folder in sorted(page.split("/")[1] for page in site.documents if re.fullmatch(r"papers/[^/]+/index\.md", page)):
        figures = sorted(page for page in site.documents if re.fullmatch(rf"papers/{folder}/(?!index)[^/]+\.md", page))
        rooms.append({folder: [f"papers/{folder}/index.md", *({Path(page).stem: page} for page in figures)]})
    return rooms


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the documents from elsewhere, the generated pages, and pictures for dark screens."""
    assert SITE is not None
    for document, page in SITE.pages.items():
        if not document.startswith("docs/"):
            files.append(File.generated(config, page, content=(ROOT / document).read_text()))
    program = Path(os.environ.get("FANIN", ROOT / "target" / "debug" / "fanin")).resolve()
    if not program.is_file():
        raise PluginError(f"FANIN = {program}: expected the program, whose help is a page: `make docs` builds it")
    files.append(File.generated(config, "reference/cli.md", content=docs_pages.cli_page(docs_pages.helper_of(program))))
    files.append(File.generated(config, "reference/keys.md", content=SITE.sources.keys_page()))
    files.append(File.generated(config, "metrics.md", content=SITE.sources.metrics_page()))
    files.append(File.generated(config, "reference/results.md", content=SITE.sources.results_page()))
    for document, page in SITE.pages.items():
        if page.endswith(".svg"):
            dark = docs_pictures.dark((ROOT / document).read_text())
            files.append(File.generated(config, page.removesuffix(".svg") + ".dark.svg", content=dark))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A document as the site shows it."""
    assert SITE is not None
    where = page.file.src_uri
    text = PLAN.sub(SITE.plan, MARKER.sub(lambda match: SITE.generated(*match.groups()), markdown))
    # What rustdoc alone understands.
    text = re.sub(r"^```(\w+),\w+$", r"```\1", text, flags=re.MULTILINE)
    text = re.sub(r"^# Ok::<.*\n", "", text, flags=re.MULTILINE)
    # A table ends, and begins, with an empty line here.
    text = re.sub(r"^(<!-- .* -->)$", r"\n\1\n", text, flags=re.MULTILINE)
    text = SITE.links(text, where)
    return re.sub(r"!\[([^\]]*)\]\(([^)#]+)\.svg\)", r"![\1](\2.svg#only-light)![\1](\2.dark.svg#only-dark)", text)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Docstrings name what they refer to as Sphinx does; the site shows the name alone."""
    return re.sub(r":(?:func|class|meth|exc|attr|mod|data):<code>~?", "<code>", html)
