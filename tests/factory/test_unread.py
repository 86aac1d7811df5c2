"""What the data factory lands is read, or refused."""

from __future__ import annotations

import pytest

from medallion.config.model import SourceConfig
from medallion.errors import UsageError
from medallion.factory import refuse_unread
from tests.support.home import a_source

READ = a_source(pattern="*.json")
UNREAD = (
    a_source(format="csv"),
    a_source(format="kafka"),
    a_source(multi_line=True),
    a_source(pattern="event.*"),
)


@pytest.mark.parametrize("unfit", UNREAD)
def test_a_source_that_reads_something_else_is_refused(unfit: SourceConfig) -> None:
    sources = {"activity": READ, "event": unfit}
    refuse_unread(sources, "activity")
    for asked in (None, "event"):
        with pytest.raises(UsageError, match=r"no source event of JSON lines .*: take --source a"):
            refuse_unread(sources, asked)


def test_what_has_been_refused_is_not_advised() -> None:
    with pytest.raises(UsageError, match=r"of .* and no source event of .*: land files of"):
        refuse_unread({"orders": READ}, None)
