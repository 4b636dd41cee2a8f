"""`python -m fanin`: the `fanin` program of this very installation."""

from __future__ import annotations

import os
import sys

from fanin.program import find_program


def main() -> int:
    program = find_program()
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
