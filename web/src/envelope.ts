// What a chart draws: rows of extrema from the server, and where they are on the screen. Pure: no
// canvas and no page, so that a test can compare what is drawn with what was recorded.

import type { Span } from "./times";

/** A line of a chart. A row with count 0 is a gap from its first to its last time. */
export interface Series {
  label: string | null;
  path: string;
  unit: string;
  first: bigint[];
  last: bigint[];
  min: number[];
  max: number[];
  firstValue: number[];
  lastValue: number[];
  count: number[];
}

export interface Envelope {
  pixel: bigint;
  isComplete: boolean;
  leftOut: number;
  unreadable: number;
  series: Series[];
}

interface RangeHeader {
  pixel_ns: string;
  is_complete: boolean;
  left_out: number;
  unreadable: number;
  series: { label: string | null; path: string; unit: string; rows: number }[];
}

export function emptySeries(label: string | null, path: string, unit: string): Series {
  return { label, path, unit, first: [], last: [], min: [], max: [], firstValue: [], lastValue: [], count: [] };
}

/** Decodes an answer: the length of a header, the header, and seven columns per series. */
export function decode(buffer: ArrayBuffer): Envelope {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length))) as RangeHeader;
  let at = 4 + length;
  const series = header.series.map(({ label, path, unit, rows }) => {
    const place = () => (at += rows * 8) - rows * 8;
    const times = () => Array.from(new BigInt64Array(buffer, place(), rows));
    const values = () => Array.from(new Float64Array(buffer, place(), rows));
    return {
      label,
      path,
      unit,
      first: times(),
      last: times(),
      min: values(),
      max: values(),
      firstValue: values(),
      lastValue: values(),
      count: times().map(Number),
    };
  });
  return {
    pixel: BigInt(header.pixel_ns),
    isComplete: header.is_complete,
    leftOut: header.left_out,
    unreadable: header.unreadable,
    series,
  };
}

/** A part of a line: for each point, x in pixels and the extrema there. */
export interface Stroke {
  x: number[];
  /** Value at which the line arrives, the extrema, and the value from which it goes on. */
  enter: number[];
  min: number[];
  max: number[];
  leave: number[];
  /** It is one sample, and no step or pixel of several. */
  isSample: boolean[];
}

/** Where a series is drawn: lines that end at gaps, and gaps. */
export interface Drawing {
  strokes: Stroke[];
  gaps: [number, number][];
}

/** Returns the pixel of a time. Relative times fit a number. */
export function xOf(at: bigint, span: Span, width: number): number {
  return (Number(at - span.from) / Number(span.to - span.from)) * width;
}

/**
 * Returns what is drawn of a series in a view. Rows that share a pixel of the screen become one
 * point with the extrema of both: nothing is left out at any zoom.
 */
export function drawing(series: Series, span: Span, width: number): Drawing {
  const strokes: Stroke[] = [];
  const gaps: [number, number][] = [];
  let stroke: Stroke | null = null;
  const add = (x: number, enter: number, min: number, max: number, leave: number, isSample: boolean) => {
    if (stroke === null) strokes.push((stroke = { x: [], enter: [], min: [], max: [], leave: [], isSample: [] }));
    const last = stroke.x.length - 1;
    if (last >= 0 && Math.floor(stroke.x[last]!) === Math.floor(x)) {
      stroke.min[last] = Math.min(stroke.min[last]!, min);
      stroke.max[last] = Math.max(stroke.max[last]!, max);
      stroke.leave[last] = leave;
      stroke.isSample[last] = false;
      return;
    }
    stroke.x.push(x);
    stroke.enter.push(enter);
    stroke.min.push(min);
    stroke.max.push(max);
    stroke.leave.push(leave);
    stroke.isSample.push(isSample);
  };
  for (let row = 0; row < series.count.length; row += 1) {
    const first = series.first[row]!;
    const last = series.last[row]!;
    if (series.count[row] === 0) {
      stroke = null;
      gaps.push([xOf(first, span, width), xOf(last, span, width)]);
      continue;
    }
    const min = series.min[row]!;
    const max = series.max[row]!;
    const x = xOf(first, span, width);
    const end = xOf(last, span, width);
    add(x, series.firstValue[row]!, min, max, series.lastValue[row]!, series.count[row] === 1 && first === last);
    // A row that is wider than a pixel ends where its last value is.
    if (Math.floor(end) > Math.floor(x)) {
      const leave = series.lastValue[row]!;
      add(end, leave, min, max, leave, false);
    }
  }
  return { strokes, gaps };
}

/** Returns the extrema of a series within a view; none without a value. */
export function extrema(series: Series, span: Span): [number, number] | null {
  let found: [number, number] | null = null;
  for (let row = 0; row < series.count.length; row += 1) {
    if (series.count[row] === 0 || series.last[row]! < span.from || series.first[row]! >= span.to) continue;
    const [min, max]: [number, number] = found ?? [Infinity, -Infinity];
    found = [Math.min(min, series.min[row]!), Math.max(max, series.max[row]!)];
  }
  return found;
}

/** Returns the row at a time, or the nearest one before it; -1 in a gap and without any. */
export function rowAt(series: Series, at: bigint): number {
  let low = 0;
  let high = series.first.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (series.first[middle]! <= at) low = middle + 1;
    else high = middle;
  }
  const row = low - 1;
  if (row < 0 || series.count[row] === 0) {
    // The gap begins with the last value before it.
    return row > 0 && series.last[row - 1] === at ? row - 1 : -1;
  }
  return row;
}

/** Returns the time of the sample next to a time, of those that rows know. */
export function neighbor(series: Series[], at: bigint, isForward: boolean): bigint | null {
  let found: bigint | null = null;
  for (const one of series) {
    for (let row = 0; row < one.count.length; row += 1) {
      if (one.count[row] === 0) continue;
      for (const time of [one.first[row]!, one.last[row]!]) {
        if (isForward ? time > at && (found === null || time < found) : time < at && (found === null || time > found)) {
          found = time;
        }
      }
    }
  }
  return found;
}

/** Appends rows of a live event, and forgets those before a time. */
export function append(envelope: Envelope, added: Series[], before: bigint): void {
  for (const one of added) {
    let own = envelope.series.find((series) => series.label === one.label && series.path === one.path);
    if (own === undefined) envelope.series.push((own = emptySeries(one.label, one.path, one.unit)));
    const newest = own.last[own.last.length - 1];
    for (let row = 0; row < one.count.length; row += 1) {
      if (newest !== undefined && one.first[row]! <= newest && one.count[row] !== 0) continue;
      for (const key of ["first", "last"] as const) own[key].push(one[key][row]!);
      for (const key of ["min", "max", "firstValue", "lastValue", "count"] as const) own[key].push(one[key][row]!);
    }
    const old = own.last.findIndex((last) => last >= before);
    if (old > 0) {
      for (const key of ["first", "last"] as const) own[key].splice(0, old);
      for (const key of ["min", "max", "firstValue", "lastValue", "count"] as const) own[key].splice(0, old);
    }
  }
  envelope.series = envelope.series.filter((series) => series.count.length > 0);
}
