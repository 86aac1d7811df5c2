"""The data factory. Standard library alone, so that landing files starts at once."""

from medallion.factory.landing import DataFactory, refuse_unread
from medallion.factory.report import LandReport

__all__ = ["DataFactory", "LandReport", "refuse_unread"]
