"""Tests of docs_examples.py, and of the documentation: each example is run by a test, or says why none runs it."""

import tempfile
import unittest
from pathlib import Path

import docs_examples
from docs_examples import Block

#: How many examples nothing runs. One more needs a reason beside it, and this number.
NOT_RUN = 74

PAGE = """Text

    fanin sim plan.toml

<!-- not run: it takes hours -->

```sh
fanin sim long.toml
```

```text
fanin prints this
```

    [network]
    hosts = 2

and

    a picture

```python
import fanin
```
"""


class Tests(unittest.TestCase):
    def test_every_example_is_run_or_says_why_not(self):
        found, known = docs_examples.all_blocks(), docs_examples.registered()
        self.assertEqual(docs_examples.problems(found, known), [])
        marked = [f"{block.page}:{block.line}: {block.reason}" for block in found if block.reason is not None]
        self.assertEqual(len(marked), NOT_RUN, "\n".join(marked))
        self.assertTrue(all(len(str(block.reason)) > 10 for block in found if block.reason is not None))
        self.assertGreater(len(docs_examples.runnable(found, known)), 8)

    def test_a_mark_below_its_example_is_told(self):
        self.assertEqual(docs_examples.idle_marks("a.md", PAGE), [])
        below = "    fanin sim long.toml\n\n<!-- not run: it takes hours -->\n\ntakes hours.\n"
        self.assertIn("a.md:3: no example follows", docs_examples.idle_marks("a.md", below)[0])
        self.assertEqual(len(docs_examples.idle_marks("a.md", below + "\n    fanin sim short.toml\n")), 1)

    def test_blocks_are_found_with_their_kind_and_their_mark(self):
        found = list(docs_examples.blocks("a.md", PAGE))
        self.assertEqual(
            [(block.line, block.kind, block.reason) for block in found],
            [
                (3, "shell", None),
                (7, "shell", "it takes hours"),
                (15, "toml", None),
                (22, "python", None),
            ],
        )
        self.assertEqual(found[2].text, "[network]\nhosts = 2\n\n")

    def test_what_nothing_runs_and_counts_that_differ_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "test.py").write_text("reads a.md")
            known = {("docs/a.md", "python"): {"count": 1, "test": "test.py"}}
            python = Block("docs/a.md", 3, "python", True, "import fanin\n", None)
            self.assertEqual(docs_examples.problems([python], known, root), [])
            self.assertIn(
                "docs/a.md: 2 unmarked examples in python, and docs/examples.toml has 1",
                docs_examples.problems([python, python], known, root),
            )
            other = {("docs/a.md", "python"): {"count": 1, "test": "no.py"}}
            self.assertEqual(docs_examples.problems([python], other, root), ["docs/examples.toml: no.py does not read docs/a.md"])
            self.assertEqual(len(docs_examples.problems([python], {}, root)), 1)

    def test_the_readme_fits_on_a_few_screens_and_names_the_commands(self):
        text = (docs_examples.ROOT / "README.md").read_text()
        self.assertLessEqual(len(text.splitlines()), 120)
        commands = [line for line in text.splitlines() if line.startswith("    make ")]
        self.assertEqual(commands, ["    make run", "    make test"])
        run = (docs_examples.ROOT / ".ci" / "run").read_text()
        self.assertIn("for stage in lint test test-all", run)


if __name__ == "__main__":
    unittest.main()
