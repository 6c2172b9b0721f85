# ruff: noqa: F403  # every class of these modules is public
"""Result files: typed models of every kind, their format version, and how they are read and written.

A result is a JSON file with a format version (``schema``), a ``kind`` and its provenance. The models are
:class:`EvaluationResult`, :class:`ComparisonResult`, :class:`PairwiseResult`, :class:`GeometryResult`,
:class:`StudyTable` and :class:`ExportResult`; each has ``load(file)``, ``save(file)`` and ``to_dict()``.
:mod:`nearfar.evaluation.schema` prints their JSON Schema.
"""

from nearfar.evaluation.results.comparison import *
from nearfar.evaluation.results.evaluation import *
from nearfar.evaluation.results.files import *
from nearfar.evaluation.results.models import *
from nearfar.evaluation.results.record import *
from nearfar.evaluation.results.study_table import *
