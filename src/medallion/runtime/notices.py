"""What a process that stays on has to say, once and not at every look."""

from __future__ import annotations

from medallion.storage.text import Reporter


class Notices:
    """Says a thing unless it is what was said last of the same matter."""

    def __init__(self, say: Reporter) -> None:
        self._say = say
        self._said: dict[str, str] = {}

    def say(self, about: str, text: str) -> bool:
        """Say it, if it is new; whether it is."""
        is_new = self._said.get(about) != text
        if text and is_new:
            self._say(text)
        self._said[about] = text
        return is_new

    def forget(self, about: str) -> None:
        """That matter is settled: should it come again, it is new."""
        self._said.pop(about, None)
