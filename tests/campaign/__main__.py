"""Runs the campaign: `python -m tests.campaign` or `make campaign`; a campaign that was stopped continues.

python -m tests.campaign                        every part, about two hours on two cores
python -m tests.campaign --minutes 3            as many cases as fit, each part in turn
python -m tests.campaign kills --case "train scl"   the cases whose group or name contains these words
python -m tests.campaign --again                the recorded cases that failed, once more, then those that are missing
python -m tests.campaign --state after          also writes tests/campaign/results/after.json and the page
"""

import argparse
import json
import math
import shutil
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from rich.console import Console
from rich.progress import track

from nearfar.evaluation.results import provenance
from tests.campaign import page, shim
from tests.campaign.case import PARTS, Case, SkipPartError, cases_of
from tests.campaign.server import Server


@dataclass(frozen=True)
class Outcome:
    """What is recorded of a case. ``wrong`` is empty if all is well; ``commit`` is that of the code that ran."""

    part: str
    group: str
    name: str
    wrong: str
    seconds: float
    commit: str


class Records:
    """Outcomes in a file of JSON lines, one for each case that ended; a line that was cut off is ignored.

    The last outcome of a case counts.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._outcomes: dict[tuple[str, str], Outcome] = {}
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            try:
                outcome = Outcome(**json.loads(line))
            except json.JSONDecodeError:
                continue
            self._outcomes[outcome.part, outcome.name] = outcome

    @property
    def outcomes(self) -> list[Outcome]:
        """The last outcome of each case."""
        return list(self._outcomes.values())

    def add(self, outcome: Outcome) -> None:
        with self._lock:
            self._outcomes[outcome.part, outcome.name] = outcome
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(asdict(outcome)) + "\n")


def main() -> None:
    """Run the cases that are not recorded yet, then print and write the counts."""
    options = _options()
    console = Console()
    options.output.mkdir(parents=True, exist_ok=True)
    records = Records(options.output / "outcomes.jsonl")
    finished = {(one.part, one.name) for one in records.outcomes if not (options.again and one.wrong)}
    waiting: dict[str, deque[Case]] = {}
    skipped: dict[str, str] = {}
    for part in options.parts:
        try:
            cases = [one for one in cases_of(part, options.seed) if (options.case or "") in f"{one.group}\n{one.name}"]
        except SkipPartError as reason:
            skipped[part] = str(reason)
            continue
        waiting[part] = deque(one for one in cases if (part, one.name) not in finished)
    deadline = time.monotonic() + 60 * (options.minutes or math.inf)
    try:
        _run_all(waiting, records, options.output, options.workers, deadline, console)
    except KeyboardInterrupt:
        console.print("Stopped. The same command continues.")
    chosen = [outcome for outcome in records.outcomes if outcome.part in options.parts]
    console.print(page.table([asdict(outcome) for outcome in chosen], skipped))
    for outcome in chosen:
        if outcome.wrong:
            console.print(f"{outcome.part}: {outcome.name}: {outcome.wrong}", markup=False, soft_wrap=True)
    if options.state:
        page.write_result(options.state, [asdict(outcome) for outcome in records.outcomes], skipped, options.seed)
    raise SystemExit(int(any(outcome.wrong for outcome in chosen)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; by default all")
    parser.add_argument("--output", type=Path, default=Path("runs/campaign"), help="folder of the records")
    parser.add_argument("--minutes", type=float, help="stop to start cases after this time")
    parser.add_argument("--case", help="only cases whose group or name contains this")
    parser.add_argument("--again", action="store_true", help="run the recorded cases that failed once more")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices")
    parser.add_argument("--workers", type=int, default=2, help="cases in parallel")
    parser.add_argument("--state", choices=page.STATES, help="write the result file of this state, and the page")
    options = parser.parse_args()
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"unknown part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    options.parts = options.parts or list(PARTS)
    return options


def _run_all(
    waiting: dict[str, deque[Case]], records: Records, output: Path, workers: int, deadline: float, console: Console
) -> None:
    """Run the cases of all parts in turn, in threads that have a server each."""
    version, own = _version(), threading.local()

    def run(turn: tuple[str, Case]) -> None:
        part, case = turn
        if time.monotonic() > deadline:
            return
        if not hasattr(own, "server"):
            own.server = servers.enter_context(Server(preload=shim.library()))
        outcome = run_case(part, case, own.server, output / part / version)
        records.add(outcome)
        if outcome.wrong:
            console.print(f"{part}: {case.name}: {outcome.wrong}", markup=False, soft_wrap=True)

    turns = list(_in_turn(waiting))
    with ExitStack() as servers, ThreadPoolExecutor(workers) as pool:
        try:
            for _ in track(pool.map(run, turns), "campaign", total=len(turns), console=console):
                pass
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise


def _version() -> str:
    """The folder of what cases share, such as recorded calls: that of the commit, or a new one if files are changed."""
    commit = _commit() or "-dirty"
    return commit.replace("-dirty", f"-dirty-{time.time_ns()}")


def _in_turn(waiting: dict[str, deque[Case]]) -> Iterator[tuple[str, Case]]:
    """One case of each part in turn."""
    while any(waiting.values()):
        for part, cases in waiting.items():
            if cases:
                yield part, cases.popleft()


def run_case(part: str, case: Case, server: Server, shared: Path) -> Outcome:
    """Run a case in an empty folder, which is deleted if all is well."""
    shared.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=shared))
    started = time.monotonic()
    try:
        wrong = case.check(server, shared, folder)
    except Exception as error:  # a defect of the check itself must not stop the campaign
        wrong = f"the check failed: {error!r} at {traceback.format_tb(error.__traceback__)[-1].strip()}"
    if not wrong:
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome(part, case.group, case.name, wrong, round(time.monotonic() - started, 3), _commit())


@cache
def _commit() -> str:
    return provenance().commit or "unknown"


if __name__ == "__main__":
    main()
