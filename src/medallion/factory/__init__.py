"""Test data with known defects, and the sample files. It needs no Spark."""

from medallion.factory.landing import DataFactory
from medallion.factory.plan import Landed
from medallion.factory.sample import refuse_unread

__all__ = ["DataFactory", "Landed", "refuse_unread"]
