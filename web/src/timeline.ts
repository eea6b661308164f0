// Who ran on each CPU: what the server sent, and where it is on the screen. Pure: no canvas and no
// page, so that a test can compare what is drawn with what was recorded.

import type { Span } from "./times";
import { xOf } from "./envelope";

/** A thread; thread 0 is the idle loop of each CPU. */
export interface Thread {
  thread: number;
  process: number;
  name: string;
}

/** Why a slice ended, by its number in an answer. */
export const ENDS = ["preempted", "then waited", "then ended", "what followed was lost", "runs on"];

/** Time of a thread on a CPU, in nanoseconds since the first time of the timeline. */
export interface Slices {
  begin: Float64Array;
  end: Float64Array;
  /** How long its thread had waited for a CPU, and slept before; NaN if not known. */
  ready: Float64Array;
  slept: Float64Array;
  thread: Uint16Array;
  waker: Uint16Array;
  ended: Uint16Array;
}

/** What a CPU did, pixel by pixel. Shares are of 65,535. */
export interface Cells {
  top: Uint16Array;
  threads: Uint16Array;
  busy: Uint16Array;
  topShare: Uint16Array;
  topProcess: Uint16Array;
  known: Uint16Array;
  own: Uint16Array;
  switches: Uint32Array;
}

export interface Track {
  cpu: number;
  slices: Slices | null;
  cells: Cells | null;
}

/** A time of which not everything is known: not recorded, records dropped, or stopped. */
export interface Stretch {
  from: bigint;
  to: bigint;
  kind: "gap" | "lost" | "stopped";
  lost: number;
}

export interface Timeline {
  first: bigint;
  pixel: number;
  pixels: number;
  isComplete: boolean;
  isExact: boolean;
  hasWakeups: boolean;
  leftOut: number;
  unreadable: number;
  threads: Thread[];
  stretches: Stretch[];
  /** Of each pixel, how many threads waited for a CPU on average, and the longest wait in nanoseconds. */
  waiting: Float64Array;
  longest: Float64Array;
  tracks: Track[];
}

interface TimelineHeader {
  pixel_ns: string;
  first_ns: string;
  pixels: number;
  is_complete: boolean;
  is_exact: boolean;
  has_wakeups: boolean;
  left_out: number;
  unreadable: number;
  threads: [number, number, string][];
  stretches: [string, string, Stretch["kind"], number][];
  tracks: { cpu: number; rows: number }[];
}

/** Decodes an answer: the length of a header, the header, and columns padded to eight bytes. */
export function decodeTimeline(buffer: ArrayBuffer): Timeline {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length))) as TimelineHeader;
  let at = 4 + length;
  const place = (bytes: number) => {
    at += Math.ceil(bytes / 8) * 8;
    return at - Math.ceil(bytes / 8) * 8;
  };
  const numbers = (rows: number) => new Float64Array(buffer, place(rows * 8), rows);
  const shares = (rows: number) => new Uint16Array(buffer, place(rows * 2), rows);
  const first = BigInt(header.first_ns);
  const times = (rows: number) => {
    const relative = new Float64Array(rows);
    new BigInt64Array(buffer, place(rows * 8), rows).forEach((time, row) => (relative[row] = Number(time - first)));
    return relative;
  };
  const waiting = numbers(header.pixels);
  const longest = numbers(header.pixels);
  const slices = (rows: number): Slices => ({
    begin: times(rows),
    end: times(rows),
    ready: numbers(rows),
    slept: numbers(rows),
    thread: shares(rows),
    waker: shares(rows),
    ended: shares(rows),
  });
  const cells = (rows: number): Cells => ({
    top: shares(rows),
    threads: shares(rows),
    busy: shares(rows),
    topShare: shares(rows),
    topProcess: shares(rows),
    known: shares(rows),
    own: shares(rows),
    switches: new Uint32Array(buffer, place(rows * 4), rows),
  });
  return {
    first,
    pixel: Number(header.pixel_ns),
    pixels: header.pixels,
    isComplete: header.is_complete,
    isExact: header.is_exact,
    hasWakeups: header.has_wakeups,
    leftOut: header.left_out,
    unreadable: header.unreadable,
    threads: header.threads.map(([thread, process, name]) => ({ thread, process, name })),
    stretches: header.stretches.map(([from, to, kind, lost]) => ({ from: BigInt(from), to: BigInt(to), kind, lost })),
    waiting,
    longest,
    tracks: header.tracks.map(({ cpu, rows }) => ({
      cpu,
      slices: header.is_exact ? slices(rows) : null,
      cells: header.is_exact ? null : cells(rows),
    })),
  };
}

/** A slice that is at least a pixel wide. */
export interface Block {
  left: number;
  right: number;
  row: number;
}

/** What a track shows between two places: shares of its height, and who ran longest. */
export interface Column {
  left: number;
  right: number;
  known: number;
  busy: number;
  /** The share of the process of the thread that ran longest. */
  topShare: number;
  own: number;
  /** Index of a thread; none is 65,535. */
  top: number;
  /** At least so many threads ran. */
  threads: number;
}

export interface TrackDrawing {
  blocks: Block[];
  columns: Column[];
}

/** Returns where times of a timeline are: a factor and what is added, in pixels. */
function scaleOf(timeline: Timeline, span: Span, width: number): (at: number) => number {
  const from = Number(timeline.first - span.from);
  const factor = width / Number(span.to - span.from);
  return (at) => (from + at) * factor;
}

/**
 * Returns what is drawn of a track in a view of so many pixels. Slices that share a pixel of the
 * screen become one column with all of them: nothing is left out at any zoom.
 */
export function trackDrawing(timeline: Timeline, track: Track, span: Span, width: number, process: number | null): TrackDrawing {
  const x = scaleOf(timeline, span, width);
  if (track.slices !== null) return sliceDrawing(timeline, track.slices, x, width, process);
  const columns: Column[] = [];
  const cells = track.cells!;
  for (let row = 0; row < cells.busy.length; row += 1) {
    const [left, right] = [x(row * timeline.pixel), x((row + 1) * timeline.pixel)];
    if (right <= 0 || left >= width || cells.known[row] === 0) continue;
    const column = {
      left,
      right,
      known: cells.known[row]! / 65535,
      busy: cells.busy[row]! / 65535,
      topShare: cells.topProcess[row]! / 65535,
      own: cells.own[row]! / 65535,
      top: cells.top[row]!,
      threads: cells.threads[row]!,
    };
    const last = columns[columns.length - 1];
    // After a zoom out, until the next answer is here, several of them share a pixel.
    if (last !== undefined && Math.floor(last.left) === Math.floor(left) && right - left < 1) merge(last, column);
    else columns.push(column);
  }
  return { blocks: [], columns };
}

/** Adds a column to the one before it: shares are weighted by width. */
function merge(column: Column, next: Column): void {
  const [width, added] = [column.right - column.left, next.right - next.left];
  const weighted = (one: number, other: number) => (one * width + other * added) / (width + added);
  if (next.topShare * added > column.topShare * width) column.top = next.top;
  column.topShare = Math.max(column.topShare * width, next.topShare * added) / (width + added);
  for (const key of ["known", "busy", "own"] as const) column[key] = weighted(column[key], next[key]);
  column.threads = Math.max(column.threads, next.threads);
  column.right = next.right;
}

function sliceDrawing(timeline: Timeline, slices: Slices, x: (at: number) => number, width: number, process: number | null): TrackDrawing {
  const blocks: Block[] = [];
  const columns: Column[] = [];
  // What is narrower than a pixel is added up in its pixel.
  let open: { pixel: number; known: number; busy: number; own: number; ran: Map<number, number> } | null = null;
  const close = () => {
    if (open === null) return;
    const column: Column = { left: open.pixel, right: open.pixel + 1, known: open.known, busy: open.busy, own: open.own, top: 65535, topShare: 0, threads: open.ran.size };
    let longest = -1;
    for (const [thread, share] of open.ran) if (share > longest) [column.top, longest] = [thread, share];
    const process = timeline.threads[column.top]?.process;
    for (const [thread, share] of open.ran) if (timeline.threads[thread]?.process === process) column.topShare += share;
    if (open.ran.size > 0) columns.push(column);
    open = null;
  };
  const add = (pixel: number, share: number, thread: number) => {
    if (open === null || open.pixel !== pixel) {
      close();
      open = { pixel, known: 0, busy: 0, own: 0, ran: new Map() };
    }
    open.known += share;
    if (timeline.threads[thread]?.thread === 0) return;
    open.busy += share;
    if (timeline.threads[thread]?.process === process) open.own += share;
    open.ran.set(thread, (open.ran.get(thread) ?? 0) + share);
  };
  for (let row = 0; row < slices.begin.length; row += 1) {
    const [left, right] = [x(slices.begin[row]!), x(slices.end[row]!)];
    if (right < 0 || left >= width) continue;
    const thread = slices.thread[row]!;
    if (right - left >= 1) {
      blocks.push({ left: Math.max(left, -1), right: Math.min(right, width + 1), row });
      continue;
    }
    const [from, to] = [Math.floor(left), Math.floor(right)];
    if (from === to || right === to) add(from, right - left, thread);
    else {
      add(from, to - left, thread);
      add(to, right - to, thread);
    }
  }
  close();
  return { blocks, columns };
}

/** Returns the row of a track at a time; -1 if nothing is known of it. */
export function trackRowAt(timeline: Timeline, track: Track, at: bigint): number {
  const time = Number(at - timeline.first);
  if (track.cells !== null) {
    const row = Math.floor(time / timeline.pixel);
    return row >= 0 && row < track.cells.known.length && track.cells.known[row]! > 0 ? row : -1;
  }
  const { begin, end } = track.slices!;
  let low = 0;
  let high = begin.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (begin[middle]! <= time) low = middle + 1;
    else high = middle;
  }
  return low > 0 && time < end[low - 1]! ? low - 1 : -1;
}

/** Returns the slice of another thread than the idle loop nearest to a time, within a distance; -1 without one. */
export function nearestSlice(timeline: Timeline, track: Track, at: bigint, distance: number): number {
  const slices = track.slices;
  if (slices === null) return -1;
  const time = Number(at - timeline.first);
  let [found, least] = [-1, distance];
  for (let row = 0; row < slices.begin.length; row += 1) {
    if (slices.begin[row]! > time + distance) break;
    if (timeline.threads[slices.thread[row]!]?.thread === 0) continue;
    const away = Math.max(slices.begin[row]! - time, time - slices.end[row]!, 0);
    if (away < least || (away === 0 && found < 0)) [found, least] = [row, away];
  }
  return found;
}

/** Returns the begin of the next or the last slice of a thread on a track; of pixels, where another thread ran longest. */
export function neighborSlice(timeline: Timeline, track: Track, at: bigint, isForward: boolean): bigint | null {
  const time = Number(at - timeline.first);
  const isBusy = (row: number) => {
    const thread = track.slices !== null ? track.slices.thread[row]! : track.cells!.top[row]!;
    return thread !== 65535 && timeline.threads[thread]?.thread !== 0;
  };
  const isNew = (row: number) => track.slices !== null || row === 0 || track.cells!.top[row] !== track.cells!.top[row - 1];
  const rows = track.slices?.begin.length ?? track.cells!.top.length;
  const begin = (row: number) => (track.slices !== null ? track.slices.begin[row]! : row * timeline.pixel);
  let found: number | null = null;
  for (let row = 0; row < rows; row += 1) {
    if (!isBusy(row) || !isNew(row)) continue;
    if (isForward && begin(row) > time) return timeline.first + BigInt(begin(row));
    if (!isForward && begin(row) < time) found = begin(row);
  }
  return found === null ? null : timeline.first + BigInt(found);
}

/** Returns the stretches of a time. */
export function stretchesAt(timeline: Timeline, at: bigint): Stretch[] {
  return timeline.stretches.filter(({ from, to }) => from <= at && at < to);
}

/** Returns where stretches are on the screen; each is at least a pixel wide. */
export function stretchPlaces(timeline: Timeline, span: Span, width: number): { left: number; right: number; kind: Stretch["kind"] }[] {
  return timeline.stretches
    .filter(({ from, to }) => to > span.from && from < span.to)
    .map(({ from, to, kind }) => {
      const left = Math.max(0, xOf(from, span, width));
      return { left, right: Math.min(width, Math.max(xOf(to, span, width), left + 1)), kind };
    });
}

/** Returns who waited in each pixel of the screen: how many on average, and the longest wait. */
export function waitingColumns(timeline: Timeline, span: Span, width: number): { left: number; right: number; mean: number; longest: number }[] {
  const x = scaleOf(timeline, span, width);
  const columns = [];
  for (let row = 0; row < timeline.pixels; row += 1) {
    const [left, right] = [x(row * timeline.pixel), x((row + 1) * timeline.pixel)];
    if (right > 0 && left < width && timeline.longest[row]! > 0) {
      columns.push({ left, right, mean: timeline.waiting[row]!, longest: timeline.longest[row]! });
    }
  }
  return columns;
}
