"""What a pipeline makes of triggers, limits and expressions, without a whole run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support import Lakehouse

from medallion.errors import ConfigError, UsageError
from medallion.streams import moment, one_line, trigger


def test_triggers() -> None:
    assert trigger("available-now") == {"availableNow": True}
    assert trigger("4 seconds") == {"processingTime": "4 seconds"}
    with pytest.raises(UsageError, match="'soon' is neither available-now nor an interval"):
        trigger("soon")


def test_an_exception_in_one_line() -> None:
    text = (
        "[FAILED] the job stopped.\n\tat a.b.c\nCaused by: java.io.IOException: disk full\n\tat d"
    )
    assert one_line(text) == "[FAILED] the job stopped. (java.io.IOException: disk full)"
    assert one_line("one thing") == "one thing"


def test_a_watermark_that_is_not_set_is_none() -> None:
    assert moment("1970-01-01T00:00:00.000Z") is None
    assert moment("1970-01-02T00:00:00.000Z") == 86_400_000_000


@pytest.mark.parametrize(
    ("layer", "column"), [("silver", "Devise"), ("silver", "nosuch(id)"), ("gold", "sum(acton)")]
)
def test_wrong_sql_names_its_table(lakehouse: Lakehouse, layer: str, column: str) -> None:
    config = lakehouse.config
    lakehouse.pipeline().run("bronze")
    if layer == "silver":
        event = config.sources["event"]
        wrong = replace(event, silver={**event.silver, "action": column})
        lakehouse.config = replace(config, sources={"event": wrong})
    else:
        lakehouse.pipeline().run("silver")
        table = replace(config.gold["action_counts"], measure={"n": column})
        lakehouse.config = replace(config, gold={"action_counts": table})
    with pytest.raises(
        ConfigError, match=rf"pipeline.yaml: {layer}\.\w+ is not SQL.*(Devise|nosuch|acton)"
    ):
        lakehouse.pipeline().run(layer)
