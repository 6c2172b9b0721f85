"""Settings and provenance: differences between runs, all configs, commands, commits, versions, hardware."""

from collections.abc import Mapping
from typing import Any

from nearfar.evaluation.report.blocks import DASH, Block, BulletList, Cell, Code, Details, Section, Table
from nearfar.evaluation.report.inputs import ReportInputs, TrainingRun
from nearfar.evaluation.results import Provenance

_IGNORED_KEYS = {"output"}
"""Settings that always differ."""


def settings(inputs: ReportInputs) -> list[Block]:
    """Configs of training and evaluation, and the provenance of every result."""
    trained: dict[str, list[Mapping[str, Any]]] = {}
    for run in inputs.runs:
        trained.setdefault(run.group_name, []).append(run.settings)
    evaluated: dict[str, list[Mapping[str, Any]]] = {
        side.name: [run.result.config for run in side.runs] for side in inputs.sides
    }
    blocks: list[Block] = [
        *_differences("Differences between the training runs", "run", trained),
        *_differences("Differences between the evaluations", "model", evaluated),
    ]
    origins = _provenance_by_source(inputs)
    if origins:
        blocks.append(Section("Commands", [Code("\n".join(_commands(origins)))]))
        blocks.append(Section("Machines and versions", _environments(origins)))
    configs = [Details(f"Training of {run.name}", _run_config_blocks(run)) for run in inputs.runs]
    for side in inputs.sides:
        files = [Code(f"# {run.source}\n{_lines(run.result.config)}") for run in side.runs]
        configs.append(Details(f"Evaluation of {side.name}", files))
    return [*blocks, *([Section("All settings", configs)] if configs else [])]


def _differences(caption: str, title: str, configs: Mapping[str, list[Mapping[str, Any]]]) -> list[Block]:
    """A row for each group, with the values of all its runs, and a column for each key that differs."""
    keys = list(dict.fromkeys(key for members in configs.values() for config in members for key in config))
    values = {
        name: {key: ", ".join(dict.fromkeys(_value(config.get(key)) for config in members)) for key in keys}
        for name, members in configs.items()
    }
    everywhere = {key: {_value(one.get(key)) for members in configs.values() for one in members} for key in keys}
    differ = [key for key in keys if len(everywhere[key]) > 1 and key not in _IGNORED_KEYS]
    if sum(map(len, configs.values())) < 2:
        return []
    if not differ:
        return [BulletList([f"{caption}: none, except for the output folder."])]
    rows: list[list[Cell | str]] = [[name, *(row[key] for key in differ)] for name, row in values.items()]
    note = f"{DASH}: off, empty, or not a setting of this method."
    return [Table(caption, [title, *differ], rows, [note], text_cells=True)]


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or DASH
    return DASH if value is None or value is False or value in ("", 0) else str(value)


def _run_config_blocks(run: TrainingRun) -> list[Block]:
    blocks: list[Block] = [Code(f"# {name}\n{text.rstrip()}") for name, text in run.files.items()]
    if not run.files:
        blocks.append(Code(_lines(run.settings)))
    facts = run.record.data if run.record else []
    return [*blocks, *([BulletList(facts)] if facts else [])]


def _lines(config: Mapping[str, Any]) -> str:
    return "\n".join(f"{key} = {_format_value(value)}" for key, value in config.items())


def _format_value(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _provenance_by_source(inputs: ReportInputs) -> dict[str, Provenance]:
    """Source -> its provenance, where it is known."""
    origins: dict[str, Provenance] = {run.source: run.record for run in inputs.runs if run.record}
    origins |= {run.source: run.result.provenance for side in inputs.sides for run in side.runs}
    origins |= {source: result.provenance for source, result in inputs.comparisons}
    origins |= {source: result.provenance for source, result in inputs.geometries}
    return {source: origin for source, origin in origins.items() if _is_known(origin)}


def _is_known(origin: Provenance) -> bool:
    return any((origin.command, origin.date, origin.commit, origin.versions, origin.hardware))


def _commands(origins: Mapping[str, Provenance]) -> list[str]:
    lines = []
    for source, origin in origins.items():
        lines += [f"# {source}, {origin.date or 'unknown date'}", origin.command or "# unknown command"]
    return lines


def _environments(origins: Mapping[str, Provenance]) -> list[Block]:
    """A row for each combination of commit, versions and machine, with the files computed there."""
    made: dict[tuple[str, str, str], list[str]] = {}
    for source, origin in origins.items():
        versions = ", ".join(f"{name} {value}" for name, value in (origin.versions or {}).items() if value)
        hardware = ", ".join(f"{name} {value}" for name, value in (origin.hardware or {}).items() if value)
        made.setdefault((origin.commit or DASH, versions or DASH, hardware or DASH), []).append(source)
    rows = [[commit, versions, hardware, ", ".join(sources)] for (commit, versions, hardware), sources in made.items()]
    return [Table("Commits, versions and hardware", ["commit", "versions", "hardware", "files"], rows, text_cells=True)]
