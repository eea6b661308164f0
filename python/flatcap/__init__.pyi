"""Reads recordings of flatcap, a flight recorder for Linux hosts."""

import pathlib
from collections.abc import Iterator, Sequence
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
    ) -> Explanation:
        """Says what was different in the window around a time, and who did it.

        Without `at`, the time at which a snapshot was ordered, else the largest spike.
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

class Departure:
    """A value of a field that departs from what is usual."""

    @property
    def source(self) -> str: ...
    @property
    def source_id(self) -> Optional[int]:
        """The id of the source, if the run has several sources with its name."""
    @property
    def field(self) -> str: ...
    @property
    def element(self) -> Optional[str]: ...
    @property
    def value(self) -> float: ...
    @property
    def usual(self) -> float: ...
    @property
    def usual_range(self) -> tuple[float, float]: ...
    @property
    def unit(self) -> str: ...
    @property
    def score(self) -> float: ...
    @property
    def wall_ns(self) -> int: ...
    @property
    def state(self) -> Optional[str]:
        """The value of a text whose share of samples is counted; of a number "unchanged", if
        samples with the value before are counted, or "absent", for the share of those without."""
    @property
    def together(self) -> list[tuple[str, str, Optional[str]]]:
        """Source, path and element of further fields that move together with it. The source has its
        id if the run has several sources with its name: orders[3]."""
    @property
    def field_unit(self) -> Optional[str]:
        """The unit of its schema."""
    @property
    def pushed_by(self) -> list[tuple[str, Optional[str], Optional[str]]]:
        """Client, user and program of those who pushed it; empty of the host's own."""
    @property
    def measured_ns(self) -> Optional[tuple[int, int]]:
        """Wall time of the first sample that the value is of, and before which the last one is."""
    @property
    def dump(self) -> Optional[list[str]]:
        """The arguments of the command that prints the value, or the samples that it is of."""

class ChildrenUse:
    """What new children of a process did, as a sum."""

    @property
    def field(self) -> str: ...
    @property
    def sum(self) -> float: ...
    @property
    def unit(self) -> str: ...
    @property
    def parts(self) -> list[Departure]: ...

class Suspect:
    """A process, control group, disk or interface that may be the cause."""

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def pid(self) -> Optional[int]: ...
    @property
    def score(self) -> float: ...
    @property
    def first_wall_ns(self) -> int: ...
    @property
    def evidence(self) -> list[Departure]: ...
    @property
    def children(self) -> list[ChildrenUse]:
        """What its new children did: no value of the process itself."""

class Offspring:
    """Processes that ended or began below another one."""

    @property
    def list(self) -> str: ...
    @property
    def parent(self) -> str: ...
    @property
    def count(self) -> int: ...

class Explanation:
    """What was different in a window."""

    @property
    def host(self) -> str: ...
    @property
    def first_wall_ns(self) -> int: ...
    @property
    def last_wall_ns(self) -> int: ...
    @property
    def before_ns(self) -> int:
        """Length of the time before, as far as it was recorded."""
    @property
    def before_least_ns(self) -> int:
        """The shortest such time of which it is known what is usual: with less, nothing is ranked."""
    @property
    def suspects(self) -> list[Suspect]: ...
    @property
    def fields(self) -> list[Departure]: ...
    @property
    def offspring(self) -> list[Offspring]: ...
    @property
    def markers(self) -> list[tuple[int, str]]: ...
    @property
    def lost(self) -> int: ...
    @property
    def late_ns(self) -> Optional[int]: ...
    @property
    def clock_steps(self) -> list[tuple[int, int]]: ...
    @property
    def left_out(self) -> int: ...
    @property
    def ranked(self) -> int:
        """How many fields were ranked."""
    @property
    def unranked(self) -> dict[str, list[str]]:
        """The names of those that were not, by reason."""
    @property
    def notices(self) -> list[str]: ...

class Spikes:
    """The moments at which fields departed most from the usual, the largest first."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Departure: ...
    def __iter__(self) -> Iterator[Departure]: ...
    @property
    def host(self) -> str: ...
    @property
    def left_out(self) -> int: ...
    @property
    def ranked(self) -> int:
        """How many fields were ranked."""
    @property
    def unranked(self) -> dict[str, list[str]]:
        """The names of those that were not, by reason."""
    @property
    def notices(self) -> list[str]: ...
