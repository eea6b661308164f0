"""Draws rows over time, for Rows.plot()."""

import datetime

# More points than a screen shows and matplotlib draws in seconds.
ROWS_MAX = 1_000_000
# Columns that say when and of what a row is.
STAMPS = {"time", "wall_ns", "mono_ns", "duration_ns", "seq", "flags", "run", "host", "element"}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
NAN = float("nan")


def plot(rows, ax, marks):
    """Draws each column of numbers; of rows that are elements, a line per element and column."""
    import matplotlib.pyplot

    from . import UsageError

    values = rows._first_rows(ROWS_MAX)
    times = values["wall_ns"]
    if len(times) > ROWS_MAX:
        raise UsageError(f"more than {ROWS_MAX} rows are too many to draw; choose a shorter time, or every=")
    if ax is None:
        _, ax = matplotlib.pyplot.subplots()
    span = (min(times), max(times)) if times else (0, 0)
    holes = [gap for gap in rows.recording.gaps() if not gap.is_thinned] if times else []
    units, all_sources = rows.units, rows.recording.sources
    for name, column in values.items():
        if name in STAMPS or not any(isinstance(value, (int, float)) for value in column):
            continue
        # Columns of samples are of one source, which their names leave out.
        own = {source for source in all_sources if name.startswith(source + ".")}
        own = {rows._source} if rows._source else own
        for label, points in lines(name, times, column, values):
            ends = [hole.before_wall_ns for hole in holes if not own or hole.source in own]
            xs, ys = broken(points, sorted(ends))
            unit = f" ({units[name]})" if name in units else ""
            ax.plot([as_datetime(wall_ns) for wall_ns in xs], ys, label=label + unit, linewidth=1)
    if marks:
        for marker in rows.recording.markers():
            if span[0] <= marker.wall_ns <= span[1]:
                ax.axvline(as_datetime(marker.wall_ns), color="grey", linestyle=":", linewidth=1)
    if ax.get_lines():
        ax.legend(loc="best", fontsize="small")
    return ax


def lines(name, times, column, values):
    """Yields a label and the points of each line of a column."""
    keys = [values[key] for key in ("host", "element") if key in values]
    found = {}
    for wall_ns, value, *key in zip(times, column, *keys):
        found.setdefault(tuple(key), []).append((wall_ns, value))
    for key, points in found.items():
        yield " ".join([name, *key]), points


def broken(points, ends):
    """Returns times and values with a hole before each time in `ends`, so that no line is drawn
    through lost samples."""
    xs, ys = [], []
    for wall_ns, value in points:
        while ends and ends[0] <= wall_ns:
            end = ends.pop(0)
            if xs and end > xs[-1]:
                xs.append(end)
                ys.append(NAN)
        xs.append(wall_ns)
        ys.append(NAN if value is None else value)
    return xs, ys


def as_datetime(wall_ns):
    return EPOCH + datetime.timedelta(microseconds=wall_ns // 1000)
