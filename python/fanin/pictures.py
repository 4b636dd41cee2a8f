"""Pictures of results."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["Pictures"]


class Pictures(Mapping[str, str]):
    """SVG texts by their names. A notebook shows them."""

    def __init__(self, pictures: Mapping[str, str]) -> None:
        self._pictures = dict(pictures)

    def __getitem__(self, name: str) -> str:
        return self._pictures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pictures)

    def __len__(self) -> int:
        return len(self._pictures)

    def __repr__(self) -> str:
        return f"<fanin.Pictures: {', '.join(self._pictures)}>"

    def _repr_html_(self) -> str:
        return "\n".join(self._pictures.values())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the only picture into ``path``, where that ends in ``.svg``; or all of them, as ``NAME.svg``, into that folder.

        Raises:
            ValueError: ``path`` ends in ``.svg``, and there are several pictures or none.
        """
        target = Path(path)
        if target.suffix == ".svg":
            if len(self._pictures) != 1:
                raise ValueError(f"{target}: expected one picture, and there are {len(self)}: {', '.join(self)}; give a folder or a name")
            [text] = self._pictures.values()
            target.write_text(text, encoding="utf-8")
            return
        target.mkdir(parents=True, exist_ok=True)
        for name, text in self._pictures.items():
            (target / f"{name}.svg").write_text(text, encoding="utf-8")

    def chosen(self, name: str | None) -> Pictures:
        """The picture of this name alone; all for ``None``.

        Raises:
            KeyError: There is no such picture; says which there are.
        """
        if name is None:
            return self
        if name not in self._pictures:
            raise KeyError(f"name = {name!r}: expected one of {', '.join(self)}")
        return Pictures({name: self._pictures[name]})
