"""Estimators and value models by name: ours and everyone's are entry points, and ``module:attribute`` works too."""

from __future__ import annotations

import inspect
import re
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from coral_pipeline.credit.estimator import Estimator
from coral_pipeline.credit.value_models import ValueModel
from coral_pipeline.errors import BadInput
from coral_pipeline.settings import CreditSettings

ESTIMATORS = "coral_pipeline.estimators"
VALUE_MODELS = "coral_pipeline.value_models"
"""Entry point groups."""
MODULE_ATTRIBUTE = re.compile(r"[\w.]+:[\w.]+")


def estimator_named(name: str, settings: CreditSettings) -> Estimator:
    """The estimator called ``name``, as ``settings`` configures it; ``BadInput`` listing what there is if none is."""
    estimator: Estimator = _part(ESTIMATORS, "estimator", name, Estimator, settings)
    return estimator


def value_model_named(name: str, settings: CreditSettings) -> ValueModel:
    """The value model called ``name``, as ``settings`` configures it; ``BadInput`` listing what there is if none is."""
    model: ValueModel = _part(VALUE_MODELS, "value model", name, ValueModel, settings)
    return model


def _part(group: str, kind: str, name: str, base: type[Estimator | ValueModel], settings: CreditSettings) -> Any:
    """An instance of ``base``: what ``name`` stands for, or, where that is a class, its ``from_settings``."""
    point = EntryPoint(name, name, group) if MODULE_ATTRIBUTE.fullmatch(name) else _entry_point(group, kind, name)
    try:
        found = point.load()
    except (ImportError, AttributeError) as error:
        raise BadInput(
            f"{kind} {name!r}", f"cannot be loaded from {point.value} ({error})", "mend or install it"
        ) from error
    if isinstance(found, base):
        return found
    if inspect.isclass(found) and issubclass(found, base) and not inspect.isabstract(found):
        return found.from_settings(settings)
    problem = f"{point.value} is no {base.__name__} that could be used"
    raise BadInput(
        f"{kind} {name!r}", problem, f"name a subclass of coral_pipeline.credit.{base.__name__} or an instance"
    )


def _entry_point(group: str, kind: str, name: str) -> EntryPoint:
    points = entry_points(group=group)
    matching = list(points.select(name=name))
    if len(matching) > 1:
        where = " and ".join(sorted(point.value for point in matching))
        raise BadInput(f"{kind} {name!r}", f"is provided twice, as {where}", "use module:attribute")
    if not matching:
        there = ", ".join(sorted(points.names)) or "none"
        raise BadInput(f"{kind} {name!r}", "is not known", f"there is {there}; or give module:attribute")
    return matching[0]
