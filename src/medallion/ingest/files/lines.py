"""The lines of a text file, and the text of its records."""

import io
import re
from collections.abc import Iterator
from typing import IO

from medallion.config.model import ReaderOptions
from medallion.ingest.files import content
from medallion.ingest.files.content import ContentError

BOM = "\ufeff"
_WIDE = ("utf-16", "utf-32")
# Bytes that are not valid in the encoding, as `surrogateescape` decodes them.
INVALID = re.compile("[\udc80-\udcff]")


def decoding_errors(encoding: str) -> str:
    """Return how bytes that are not valid in an encoding are decoded."""
    # UTF-16 and UTF-32 have no single bytes that could stay as they are.
    return "strict" if encoding.startswith(_WIDE) else "surrogateescape"


class Lines:
    """The lines of a file, and those of the record that is being read.

    Attributes:
        record: The lines of the record. The reader of records clears it.
        is_at_end: Whether all lines were read.

    Args:
        data: The file.
        options: The reader options.
        limit: The most characters of a record.
        is_csv: False if lines end with `\n`, as in JSON and text, whatever their ends are.
    """

    def __init__(
        self, data: IO[bytes], options: ReaderOptions, limit: int, is_csv: bool = True
    ) -> None:
        self.encoding, self.errors = options.encoding, decoding_errors(options.encoding)
        self._limit = limit
        self._text = io.TextIOWrapper(data, self.encoding, self.errors, "" if is_csv else None)
        self._comment, self._skipped = options.comment, options.skip_rows
        self.record: list[str] = []
        self.number, self.first, self.is_at_end = 0, 1, False

    def __iter__(self) -> Iterator[str]:
        """Yield each line with its end, without comments between records.

        Raises:
            ContentError: The record has more characters than the limit.
        """
        record, limit, comment = self.record, self._limit, self._comment
        readline, length = self._text.readline, 0
        while line := readline(limit + 2):
            self.number += 1
            if not record:
                length, self.first = 0, self.number
            record.append(line)
            if len(record) == 1:
                if line[0] == BOM:  # also in the middle, if files were concatenated
                    line = line.lstrip(BOM)
                if comment and line.startswith(comment):
                    record.clear()
                    continue
            length += len(line)
            if length > limit and length - len(line) + len(line.rstrip("\r\n")) > limit:
                raise ContentError(
                    f"longer than {content.format_bytes(limit)}, the max_line_bytes of this "
                    "source: split it, close its quotes, or raise the setting"
                )
            yield line
        self.is_at_end = True

    def skip_rows(self) -> str:
        """Skip the lines before the header, and return their text.

        Raises:
            ContentError: a file that is not empty has fewer lines.
        """
        self.number = self._skipped
        skipped = [self._text.readline() for _ in range(self._skipped)]
        if skipped and skipped[0] and not skipped[-1]:
            raise ContentError(f"it has fewer lines than options.skipRows, {self._skipped}")
        return "".join(skipped)

    def next_record(self) -> str:
        """Return the raw text of the record, and start the next one."""
        text = self.record[0] if len(self.record) == 1 else "".join(self.record)
        self.record.clear()
        return text

    def raw_text(self, text: str) -> str:
        """Return the text of a corrupt record; bytes that are not valid are read as Latin-1."""
        if not INVALID.search(text):
            return text
        return text.encode(self.encoding, "surrogateescape").decode("latin-1")
