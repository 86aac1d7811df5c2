"""When the queries of a stream are settled, which do not end, and what is told if that fails."""

from __future__ import annotations

import time
from collections.abc import Sequence

from medallion.errors import MedallionError
from medallion.layers.flow import Flow
from medallion.runtime.notices import Notices
from medallion.runtime.pipeline import Pipeline
from medallion.spark.errors import as_medallion_error

SETTLE_SECONDS = 30.0
SETTLE_BATCHES = 50


class Settler:
    """Settles the queries of a stream; what cannot be put on record is told, and tried again.

    Attributes:
        missing: by query, why what it did last is not on record.
    """

    def __init__(self, pipeline: Pipeline, notices: Notices) -> None:
        self._pipeline, self._notices = pipeline, notices
        self._settled = -SETTLE_SECONDS
        self.missing: dict[str, str] = {}

    def settle_if_due(self, flows: Sequence[Flow]) -> None:
        """Settle every half minute; sooner where rows were late, or batches are many."""
        batches = [flow.run.batches for flow in flows if flow.run]
        # Late rows wait for nobody, and the offsets that settling reads are not kept for ever.
        is_due = any(batch.late for some in batches for batch in some.values())
        is_due = is_due or any(len(some) >= SETTLE_BATCHES for some in batches)
        # What cannot be settled is not tried at every look.
        is_due = is_due and not self.missing
        if is_due or time.monotonic() - self._settled > SETTLE_SECONDS:
            self.settle(flows)
            self._settled = time.monotonic()

    def settle(self, flows: Sequence[Flow]) -> bool:
        """Put on record what queries did; whether that went well."""
        names = [flow.name for flow in flows if flow.run and not flow.run.is_recorded]
        try:
            errors = self._pipeline.settle(flows)
        except Exception as error:
            errors = dict.fromkeys(
                names, as_medallion_error(error, "what was done cannot be put on record")
            )
        for name in names:
            self._note(name, errors.get(name))
        return not errors

    def refused(self, name: str, error: MedallionError) -> None:
        """Put on record that a query could not start."""
        for fault in self._pipeline.record_refused(name, error):
            self._note(name, fault)
            self._notices.forget(name)  # so that the next try is told, and put on record

    def _note(self, name: str, error: MedallionError | None) -> None:
        self.missing.pop(name, None)
        if error:
            self.missing[name] = str(error)
        # Where nothing can be put on record, that is one thing to be told.
        self._notices.say("record", "; ".join(dict.fromkeys(self.missing.values())))
