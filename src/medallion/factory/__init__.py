"""The data factory. Standard library alone, so that landing files starts at once."""

from medallion.factory.landing import DataFactory
from medallion.factory.plan import Landed
from medallion.factory.unread import refuse_unread

__all__ = ["DataFactory", "Landed", "refuse_unread"]
