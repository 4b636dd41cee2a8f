"""Tests of docs_pages.py: what the site generates is what the sources say."""

import tempfile
import unittest
from pathlib import Path

import docs_pages

ROOT = Path(__file__).resolve().parent.parent

KEYS = """
class _Job(TypedDict):
    system: Literal["ring", "tree"]


class Job(_Job, total=False):
    \"\"\"A job.\"\"\"

    message: Bytes


class SystemKeys(TypedDict, total=False):
    # ring, rina
    order: Literal["host", "placement"]


_LimitFrom = TypedDict("_LimitFrom", {"from": Time}, total=False)
"""

ROWS = """
| key | default | meaning |
|---|---|---|
| `order` (ring, rina) | `"host"` | one \\| two |
| `rate`, `latency` | | of every link |

| field | meaning |
|---|---|
| `seed` | another table |
"""


class Tests(unittest.TestCase):
    def test_keys_have_their_tables_types_and_systems(self):
        found = [(key.table, key.name, key.systems) for key in docs_pages.plan_keys(KEYS)]
        self.assertEqual(found, [("Job", "system", ()), ("Job", "message", ()), ("Job", "order", ("ring", "rina")), ("Limit", "from", ())])
        self.assertEqual(docs_pages.typed("int | Literal['a', 'b']"), 'int or "a" or "b"')

    def test_rows_stand_for_each_key_that_they_name(self):
        rows = docs_pages.key_rows(ROWS)
        self.assertEqual(
            [(row.name, row.systems, row.default) for row in rows],
            [("order", ("ring", "rina"), '`"host"`'), ("rate", (), ""), ("latency", (), "")],
        )
        self.assertEqual(rows[0].meaning, "one \\| two")

    def test_commands_are_listed_with_those_below_them(self):
        texts = {
            (): "Usage\n\nCommands:\n  sim    Simulate\n  model  Formulas\n         of papers\n  help   Print\n\nOptions:\n  -h  no command\n",
            ("sim",): "Simulate a plan\n",
            ("model",): "Commands:\n  a2tp  A2TP\n\n",
            ("model", "a2tp"): "Window\n",
        }
        page = docs_pages.cli_page(lambda command: texts[tuple(command)])
        self.assertEqual(
            [line for line in page.splitlines() if line.startswith("#")],
            ["# Command line", "## fanin", "## fanin sim", "## fanin model", "### fanin model a2tp"],
        )

    def test_claims_have_what_was_recorded(self):
        with tempfile.TemporaryDirectory() as folder:
            claims = Path(folder) / "claims.toml"
            claims.write_text(
                '[[claims]]\nid = "a"\ntext = "twice | thrice"\npaper = 2.0\n[[claims]]\nid = "b"\nclass = "consistency"\nuntestable = "no"\n'
            )
            claims.with_name("verdicts.json").write_text(
                '{"claims": [{"id": "a", "measured": 1.5, "interval": [1.25, 1.75], "verdict": "not reproduced"}]}'
            )
            rows = list(docs_pages.claim_rows(claims))
            self.assertEqual(rows[0], (["twice \\| thrice", "2", "1.5", "1.25 to 1.75", "not reproduced"], "not reproduced", False))
            self.assertEqual(rows[1][1:], ("cannot be tested here", True))

    def test_every_system_has_a_page_with_its_parameters_claims_and_clauses(self):
        sources = docs_pages.Sources(ROOT)
        systems = sorted(path.stem for path in (ROOT / "docs" / "systems").glob("*.md") if path.stem != "index")
        named = sources.systems_table()
        type_of = next(key.type for key in sources.keys if key.table == "Job" and key.name == "system")
        self.assertEqual(systems, sorted(name for name in docs_pages.typed(type_of).replace('"', "").split(" or ")))
        for system in systems:
            text = (ROOT / "docs" / "systems" / f"{system}.md").read_text()
            for part in ("parameters", "claims", "clauses"):
                self.assertRegex(text, f"<!-- generated: {part} {system}( [a-z0-9]+)? -->")
            self.assertIn(f"[`{system}`]({system}.md)", named)
            self.assertIn("clauses of its description", sources.clauses(system))
        self.assertIn("`timeout`", sources.parameters("canary"))
        self.assertIn("reproduced", sources.claims("canary", "canary"))
        self.assertIn("no parameters of its own", sources.parameters("nothing"))
        self.assertIn("[canary fig08](../papers/canary/fig08.md)", sources.claims("ring"))
        self.assertIn("No other figure runs it", sources.claims("nothing"))

    def test_every_metric_of_the_switches_is_on_one_page(self):
        page = docs_pages.Sources(ROOT).metrics_page()
        for name in docs_pages.METRICS:
            prefix = {"switch": "fanin_switch_", "fabric": "fanin_fabric_", "transparent": "fanin_transparent_"}[name]
            rows = [line for line in (ROOT / "docs" / f"{name}.md").read_text().splitlines() if line.startswith(f"| `{prefix}")]
            self.assertGreater(len(rows), 15)
            for row in rows:
                self.assertIn(docs_pages.cells(row)[0], page)
        self.assertIn("| `fanin_switch_job_ranks` | ranks that have joined and not left | `job`, `job_id` |", page)

    def test_every_key_of_jobs_and_networks_is_explained(self):
        sources = docs_pages.Sources(ROOT)
        missing = {key.name for key in sources.keys if key.table in ("Job", "Network", "Traffic", "Run") and sources.row(key) is None}
        self.assertEqual(missing, set())


if __name__ == "__main__":
    unittest.main()
