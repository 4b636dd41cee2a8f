"""Tests of docs_links.py: what leads somewhere is fine, and everything else is found."""

import tempfile
import unittest
from pathlib import Path

import docs_links


class Tests(unittest.TestCase):
    def found(self, body: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            site = Path(folder)
            (site / "rooms").mkdir()
            (site / "rooms" / "index.html").write_text('<h1 id="top">Rooms</h1><a href="../index.html#here">back</a>')
            (site / "a.svg").write_text("<svg/>")
            (site / "index.html").write_text(f'<p id="here"></p>{body}')
            return list(docs_links.problems(site))

    def test_files_folders_places_and_other_sites_are_fine(self):
        links = ["rooms/index.html", "rooms/", "rooms/index.html#top", "#here", "https://example.org/a?b#c", "mailto:a@example.org"]
        self.assertEqual(self.found("".join(f'<a href="{link}">x</a>' for link in links) + '<img src="a.svg#only-light">'), [])

    def test_what_leads_nowhere_is_found(self):
        for link, why in [
            ("rooms/no.html", "there is no such file"),
            ("rooms/index.html#no", "there is no such place on the page"),
            ("#no", "there is no such place on the page"),
            ("https://exa mple.org", "it has a blank"),
            ("https://example", "expected a host's name"),
            ("ftp://example.org", "expected http, https or mailto"),
            ("mailto:nobody", "expected name@host"),
        ]:
            self.assertEqual(self.found(f'<a href="{link}">x</a>'), [f"index.html: {link}: {why}"])
        self.assertEqual(self.found('<img src="b.svg">'), ["index.html: b.svg: there is no such file"])

    def test_what_is_loaded_from_elsewhere_is_found(self):
        self.assertEqual(
            self.found('<script src="https://example.org/a.js"></script>'), ["index.html: loads https://example.org/a.js from elsewhere"]
        )


if __name__ == "__main__":
    unittest.main()
