"""Reads recordings of flatcap, a flight recorder for Linux hosts."""

import pathlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from os import PathLike
from typing import Any, Optional, Union

__version__: str

# A text as the command line takes it ("-5m", "2026-11-22T21:05:37.463435+01:00", "+10s"),
# nanoseconds since 1970, or a datetime, which is local without a zone.
Time = Union[str, int, datetime]
# A text such as "300ms" or "5m", or a timedelta.
Length = Union[str, timedelta]
# Paths of `flatcap fields`, with commas between them or as a sequence.
Names = Union[str, Sequence[str]]
Path = Union[str, PathLike[str]]

class Error(Exception):
    """Any error of flatcap."""

class UsageError(Error):
    """An argument that is invalid, or that does not fit."""

class FieldError(UsageError):
    """A field or condition that fits no source."""

class NoSamplesError(Error):
    """No sample is in the selected time."""

class ReadError(Error):
    """A file or directory that cannot be read."""

def open(path: Union[Path, Sequence[Path]], *more: Path, host: Optional[str] = None) -> Recording:
    """Opens a recording: a segment, a directory of segments, or several of both.

    `host` is the name or machine id of the one host to read, if they are of several.
    """

class Recording:
    """Segments, and directories of them, of one or several hosts."""

    @property
    def paths(self) -> list[pathlib.Path]:
        """The paths it was opened with."""
    @property
    def sources(self) -> list[str]:
        """Names of the sources."""
    @property
    def hosts(self) -> list[Host]:
        """The hosts, in the order of their first runs."""
    @property
    def span(self) -> Optional[tuple[int, int]]:
        """Begin and end of the samples, in nanoseconds since 1970; None without samples."""
    def fields(self, source: Optional[str] = None) -> list[Field]:
        """The fields of all sources, or of one, from the recording's own schemas."""
    def read(
        self,
        fields: Names,
        *,
        since: Optional[Time] = None,
        until: Optional[Time] = None,
        every: Optional[Length] = None,
        where: Optional[str] = None,
        long: bool = False,
        rate: bool = False,
    ) -> Rows:
        """Asks for rows of fields, with the columns of `flatcap dump --fields`.

        Fields of several sources are joined on time: a row has the time of the source with the
        shortest period. `every` makes a row for each step ("100ms", "1s:max"), `long` one for each
        element of a list, `rate` makes changes per second of counters. `where` is a condition on
        recorded values ("cpu.running > 3", "mem_available < 1GiB").
        """
    def samples(
        self,
        source: str,
        fields: Optional[Names] = None,
        *,
        since: Optional[Time] = None,
        until: Optional[Time] = None,
        every: Optional[Length] = None,
        where: Optional[str] = None,
    ) -> Rows:
        """Asks for the samples of one source, with the columns of `flatcap export --to arrow`.

        Columns have the exact types of the schema, lists are lists of structs, and the envelope of
        each sample is there: its number, times, flags and run. `every` selects the first sample of
        each step.
        """
    def markers(self) -> list[Marker]:
        """The marks, in the order of time."""
    def gaps(self, source: Optional[str] = None) -> list[Gap]:
        """What is known of samples that are not in the recording, in the order of time."""
    def snapshots(self) -> list[Snapshot]:
        """The snapshots in the directories of the recording."""
    def explain(
        self,
        at: Optional[Time] = None,
        *,
        window: Length = "300ms",
        before: Length = "10s",
        sources: Optional[Names] = None,
        limit: Optional[int] = None,
    ) -> Explanation:
        """Says what was different in the window around a time, and who did it.

        Without `at`, the time at which a snapshot was ordered, else the largest spike. `limit` is
        the maximum length of each list; unlike that of the command, it has no default.
        """
    def spikes(
        self,
        *,
        since: Optional[Time] = None,
        until: Optional[Time] = None,
        sources: Optional[Names] = None,
        limit: int = 10,
    ) -> Spikes:
        """Finds the moments at which fields departed most from the usual, the largest first."""

class Rows:
    """Rows, which are read each time that a consumer takes them, in batches.

    `polars.DataFrame(rows)`, `pyarrow.table(rows)`, `pandas.DataFrame.from_arrow(rows)` and, with
    the variable in a query, `duckdb.sql("from rows")`.
    """

    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
    @property
    def recording(self) -> Recording:
        """The recording."""
    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
    @property
    def units(self) -> dict[str, str]:
        """Units of the columns that have one."""
    @property
    def descriptions(self) -> dict[str, str]:
        """What the schema says of the columns."""
    @property
    def damage(self) -> int:
        """How many problems the last reading found. What they concern is not among the rows."""
    @property
    def notices(self) -> list[str]:
        """The first 100 of these, in words."""
    def to_pydict(self) -> dict[str, list[Any]]:
        """All rows in memory: a list of values per column. Absent values are None."""
    def plot(self, ax: Optional[Any] = None, *, marks: bool = True) -> Any:
        """Draws the columns over time by matplotlib. Lines end at gaps. Returns the axes."""

class Field:
    """A field of a source, as its own schema describes it."""

    @property
    def source(self) -> str: ...
    @property
    def path(self) -> str:
        """With the source, as `read` takes it."""
    @property
    def type(self) -> str: ...
    @property
    def unit(self) -> Optional[str]: ...
    @property
    def kind(self) -> str:
        """counter, gauge, state, text or unknown."""
    @property
    def meaning(self) -> str: ...
    @property
    def in_all_runs(self) -> bool: ...

class Host:
    """A host that recordings are of."""

    @property
    def name(self) -> str: ...
    @property
    def machine_id(self) -> Optional[str]: ...
    @property
    def labels(self) -> dict[str, str]: ...

class Marker:
    """A note at a point in time."""

    @property
    def wall_ns(self) -> int: ...
    @property
    def mono_ns(self) -> int: ...
    @property
    def origin(self) -> str:
        """person, trigger or recorder."""
    @property
    def text(self) -> str: ...
    @property
    def host(self) -> str: ...

class Gap:
    """Samples that are not in the recording."""

    @property
    def source(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def first(self) -> int:
        """Number of the first one in its run."""
    @property
    def count(self) -> int: ...
    @property
    def causes(self) -> str:
        """Names joined by +."""
    @property
    def is_thinned(self) -> bool:
        """They were left out on purpose, to record the source less often."""
    @property
    def after_mono_ns(self) -> int:
        """Begin of the last recorded sample before them; 0 for none."""
    @property
    def before_mono_ns(self) -> int:
        """Begin of the first recorded sample after them."""
    @property
    def after_wall_ns(self) -> Optional[int]: ...
    @property
    def before_wall_ns(self) -> int: ...

class Snapshot:
    """A window of the ring that was kept: a directory of segments, for `open`."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> pathlib.Path: ...
    @property
    def rule(self) -> Optional[str]: ...
    @property
    def reason(self) -> str: ...
    @property
    def fired_wall_ns(self) -> int: ...
    @property
    def first_wall_ns(self) -> int: ...
    @property
    def last_wall_ns(self) -> int: ...
    @property
    def complete(self) -> bool: ...
    @property
    def kept(self) -> bool: ...

class Report(dict[str, Any]):
    """A JSON object of an answer, whose keys are attributes, too. A key that is absent since there
    is nothing to say, such as `source_id`, is an attribute with the value None."""

    def __getattr__(self, name: str) -> Any: ...

class Explanation(Report):
    """What was different in a window: the object of `flatcap explain --json`. Functions have no
    names, since the program that knows them is not part of this package."""

    # first_wall_ns, last_wall_ns.
    window: Report
    # The time before, of which it is known what is usual: recorded_ns, least_ns, is_too_short.
    baseline: Report
    # The answer as a sentence.
    answer: str
    # Processes, control groups, disks and interfaces: kind, name, pid, identity (command_line, unit,
    # container, pod, user), role, score, what, evidence (as fields), children (field, count, sum,
    # unit, parts), ended (wall_ns, exit_code, signal, usual_cpu_percent), first_wall_ns. The role is
    # used_more, ended, used_less or waited. identity and its keys are absent if they are not known.
    suspects: list[Report]
    # Departures as those of Spikes, with first_wall_ns and together.
    fields: list[Report]
    # How many fields were ranked; those that were not: reason, count, fields.
    ranked: int
    unranked: list[Report]
    # wall_ns, text.
    markers: list[Report]
    lost: int
    # From the kernel's events, if they were recorded: who ran, waited for a CPU and slept longer
    # than usual, which code ran, what was logged.
    tasks: Optional[Report]
    waits: Optional[list[Report]]
    sleeps: Optional[list[Report]]
    stacks: Optional[Report]
    log: Optional[Report]
    host: str
    # Processes that ended or began: list, parent, count.
    offspring: list[Report]
    late_ns: Optional[int]
    # wall_ns, step_ns.
    clock_steps: list[Report]
    left_out: int
    # Problems with files; not part of the JSON.
    notices: list[str]

class Spikes(list[Report]):
    """The moments at which fields departed most from the usual, the largest first: the list of
    `flatcap spikes --json`. Each has wall_ns, source, source_id, field, element, value, usual,
    usual_low, usual_high, unit, is_early, field_unit, score, measured, pushed_by, state, ended, name
    and path. The attributes are not part of the JSON."""

    host: str
    left_out: int
    ranked: int
    unranked: list[Report]
    notices: list[str]
