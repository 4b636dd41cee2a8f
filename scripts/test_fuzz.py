"""Every parser of what comes from outside has a fuzz target, every target has a corpus, and fuzz.py finds and builds them."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import fuzz

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "fuzzing.md"

#: How something that reads bytes or text of others begins: a function by its name and what it is given, or a reader of a library.
PARSER = re.compile(
    r"\bfn (?:parse|decode|unpack|from_bytes|from_json|read_header)\w*(?:<[^>]*>)?\((?:&?(?:mut )?self, )?"
    r"[^)]*(?:&\[u8\]|&str|\[u8; \w+\]|impl Read|impl BufRead)"
    r"|serde_json::from_(?:slice|str|reader)|toml::from_str|Document::parse\(|Deserializer::from_|ciborium::from_reader|ReaderBuilder::new"
)
#: A row of the page's tables: files, then targets or a reason.
ROW = re.compile(r"^\| ((?:`crates/[^`]+`(?:, )?)+) \| (.+) \|$", re.MULTILINE)
#: All targets, looked for once.
TARGETS = fuzz.targets(ROOT)
#: What all corpora together may take.
CORPORA_BYTES_MAX = 640 << 10


def parsers() -> set[str]:
    """The files of crates in which there is one, without their tests."""
    found = set()
    for file in sorted(ROOT.glob("crates/*/src/**/*.rs")):
        name = file.relative_to(ROOT).as_posix()
        if "/tests/" in name or name.endswith(("tests.rs",)) or name.startswith("crates/lint/"):
            continue
        text = re.split(r"#\[cfg\((?:test|all\(test)", file.read_text())[0]
        if PARSER.search(text):
            found.add(name)
    return found


def rows() -> dict[str, str]:
    """What the page says of each file."""
    return {file: said for files, said in ROW.findall(PAGE.read_text()) for file in re.findall(r"`([^`]+)`", files)}


class Targets(unittest.TestCase):
    """The targets of this repository."""

    def test_every_parser_of_what_comes_from_outside_has_a_target_or_a_reason(self) -> None:
        said, found = rows(), parsers()
        self.assertGreater(len(found), 60)
        self.assertEqual(found - set(said), set(), "parsers of which docs/fuzzing.md does not know")
        for file in said:
            self.assertTrue((ROOT / file).exists(), file)

    def test_every_target_on_the_page_exists_and_every_target_is_on_it(self) -> None:
        named = set(re.findall(r"\b(\w+_fuzzed)\b", PAGE.read_text()))
        known = {target.name.split("::")[-1] for target in TARGETS}
        self.assertEqual(named, known)

    def test_every_target_has_a_corpus_and_every_corpus_a_target(self) -> None:
        homes = {target.home for target in TARGETS}
        size = 0
        for home in sorted(homes):
            inputs = list((home / "corpus").glob("*"))
            self.assertTrue(inputs, f"{home.relative_to(ROOT)}: no corpus: make fuzz")
            self.assertLessEqual(max(file.stat().st_size for file in inputs), fuzz.BYTES_MAX)
            size += sum(file.stat().st_size for file in inputs)
        self.assertLessEqual(size, CORPORA_BYTES_MAX)
        for folder in ROOT.glob("crates/*/**/__fuzz__/*"):
            self.assertIn(folder, homes, "a corpus without a target")

    def test_every_target_runs_for_an_hour_every_night(self) -> None:
        workflow = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()
        matrix = re.search(r"target: \[(.+)\]", workflow)
        assert matrix is not None
        words = [word.strip(' "') for word in matrix[1].split(",")]
        for target in TARGETS:
            self.assertTrue(any(word in target.title for word in words), f"{target.title} is in no job of nightly.yml")
        for word in words:
            self.assertTrue(any(word in target.title for target in TARGETS), f"{word} is no target")

    def test_an_ordinary_test_reads_the_corpus_and_draws_nothing(self) -> None:
        for target in TARGETS:
            for file in target.folder.glob("*.rs"):
                for check in re.findall(r"bolero::check!\(\)[^;]*?\.for_each", file.read_text(), re.DOTALL):
                    self.assertEqual(check, "bolero::check!().with_iterations(0).for_each", file)


class Script(unittest.TestCase):
    """What fuzz.py makes of sources and of words."""

    def test_targets_are_found_in_sources_and_in_macros(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder) / "crates" / "x"
            (home / "src" / "a" / "tests").mkdir(parents=True)
            (home / "tests").mkdir()
            (home / "Cargo.toml").write_text('[package]\nname = "fanin-x"\n')
            (home / "src" / "a" / "mod.rs").write_text("mod tests {\n    fn one_fuzzed() {\n        bolero::check!();\n")
            (home / "src" / "a" / "tests" / "deep.rs").write_text("fn two_fuzzed() {\n    bolero::check!();\n")
            (home / "tests" / "all.rs").write_text("macro bolero::check!\n    three_fuzzed, Kind;\n")
            (home / "tests" / "none.rs").write_text("fn not_fuzzed() {\n}\n")
            found = fuzz.targets(Path(folder))
            titles = [target.title for target in found]
            self.assertEqual(
                titles, ["fanin-x all three_fuzzed", "fanin-x unit a::tests::deep::two_fuzzed", "fanin-x unit a::tests::one_fuzzed"]
            )
            self.assertEqual(found[2].home, home / "src" / "a" / "__fuzz__" / "a__tests__one_fuzzed")

    def test_what_is_built_together(self) -> None:
        one = fuzz.Target("fanin-a", "t", "x_fuzzed", Path("/"))
        unit = fuzz.Target("fanin-b", "", "m::y_fuzzed", Path("/"))
        alone = fuzz.Target("fanin-operator", "modules", "z_fuzzed", Path("/"))
        with mock.patch.object(fuzz, "host", return_value="h"):
            built = [" ".join(command).split("json-render-diagnostics ")[1] for command in fuzz.commands([one, unit, alone])]
        self.assertEqual(
            built,
            [
                "--no-default-features --package fanin-a --test t",
                "--no-default-features --package fanin-b --lib",
                "--package fanin-operator --test modules",
            ],
        )

    def test_what_libfuzzer_says_is_counted(self) -> None:
        said = "#2\tINITED\n#4096\tpulse\nstat::number_of_executed_units: 5000\n"
        self.assertEqual((fuzz.executions(said), fuzz.executions("")), (5000, 0))

    def test_a_finding_is_told_with_what_shows_it_again_and_a_run_of_nothing_is_an_error(self) -> None:
        with tempfile.TemporaryDirectory(dir=ROOT) as folder, mock.patch.object(fuzz, "BUILD", Path(folder) / "build"):
            target = fuzz.Target("fanin-a", "t", "x_fuzzed", Path(folder))
            program = Path(folder) / "program"
            program.write_text("#!/bin/sh\necho '#77 NEW'; echo panicked at 1; exit 77\n")
            program.chmod(0o755)
            with contextlib.redirect_stdout(io.StringIO()) as out:
                self.assertFalse(fuzz.fuzz(str(program), target, 1))
            self.assertIn("panicked at 1", out.getvalue())
            self.assertIn("again: cargo test --package fanin-a x_fuzzed", out.getvalue())
            program.write_text("#!/bin/sh\necho 'running 0 tests'\n")
            with self.assertRaisesRegex(RuntimeError, "nothing was run"):
                fuzz.fuzz(str(program), target, 1)

    def test_what_cannot_be_is_refused(self) -> None:
        for arguments in (["--seconds", "0"], ["no-such-target"]):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                fuzz.main(arguments)


if __name__ == "__main__":
    unittest.main()
