// Tests of what draws, without a browser. They run under node --test's assertions.

import assert from "node:assert/strict";
import { heldText, parseHeld } from "../src/address";
import { parsed } from "../src/api";
import { decode, drawing, emptySeries, extrema, neighbor, rowAt, xOf, type Series } from "../src/envelope";
import {
  trackDrawing, trackRowAt, nearestSlice, neighborSlice, decodeTimeline, stretchPlaces, waitingColumns, type Cells, type Track, type Slices, type Timeline,
} from "../src/timeline";
import { exactText, tickStep, ticks, timeText, zoneText } from "../src/times";
import { shortText, shown, valueText } from "../src/units";
import { bounded, timeAt, zoomed } from "../src/view";

/** A generator of numbers that is the same in each run: a failure can be repeated. */
function random(seed: number): () => number {
  return () => {
    seed = (seed * 1664525 + 1013904223) >>> 0;
    return seed / 2 ** 32;
  };
}

const BEGIN = 1700000000123456789n;

/** Returns samples with spikes of one sample, and gaps, each sample as a row. */
function samples(next: () => number, count: number): Series {
  const series = emptySeries(null, "", "");
  let at = BEGIN;
  for (let sample = 0; sample < count; sample += 1) {
    const isGap = next() < 0.01;
    const before = at;
    at += BigInt(Math.floor(next() * 2e6) + 1) * (isGap ? 50n : 1n);
    if (isGap && sample > 0) push(series, before, at, NaN, 0);
    const value = next() < 0.002 ? next() * 1e9 : next();
    push(series, at, at, value, 1);
  }
  return series;
}

function push(series: Series, first: bigint, last: bigint, value: number, count: number): void {
  series.first.push(first);
  series.last.push(last);
  for (const key of ["min", "max", "firstValue", "lastValue"] as const) series[key].push(value);
  series.count.push(count);
}

/** Returns the extrema by pixel of the screen, and what is drawn there. */
function compare(series: Series, from: bigint, to: bigint, width: number): void {
  const wanted = new Map<number, [number, number]>();
  for (let row = 0; row < series.count.length; row += 1) {
    if (series.count[row] === 0) continue;
    const x = Math.floor(xOf(series.first[row]!, { from, to }, width));
    const [min, max] = wanted.get(x) ?? [Infinity, -Infinity];
    wanted.set(x, [Math.min(min, series.min[row]!), Math.max(max, series.max[row]!)]);
  }
  const drawn = new Map<number, [number, number]>();
  for (const stroke of drawing(series, { from, to }, width).strokes) {
    stroke.x.forEach((place, point) => {
      const x = Math.floor(place);
      const [min, max] = drawn.get(x) ?? [Infinity, -Infinity];
      drawn.set(x, [Math.min(min, stroke.min[point]!), Math.max(max, stroke.max[point]!)]);
      for (const value of [stroke.enter[point]!, stroke.leave[point]!]) {
        assert.ok(value >= stroke.min[point]! && value <= stroke.max[point]!);
      }
    });
  }
  assert.deepEqual([...drawn].sort(), [...wanted].sort());
}

// What is drawn in each pixel has the extrema of the samples in it, at every zoom.
for (let seed = 1; seed <= 40; seed += 1) {
  const next = random(seed);
  const series = samples(next, 3000);
  const end = series.last[series.last.length - 1]! + 1n;
  for (let zoom = 0; zoom < 8; zoom += 1) {
    const length = Number(end - BEGIN) / 10 ** zoom;
    const from = BEGIN + BigInt(Math.floor(next() * (Number(end - BEGIN) - length)));
    compare(series, from, from + BigInt(Math.ceil(length)) + 1n, 1 + Math.floor(next() * 1600));
  }
}

// Extrema of a view are those of its rows; a cursor in a gap has no row.
{
  const series = emptySeries(null, "", "");
  push(series, 10n, 10n, 1, 1);
  push(series, 10n, 50n, NaN, 0);
  push(series, 50n, 50n, 9, 1);
  push(series, 60n, 60n, 3, 1);
  assert.deepEqual(extrema(series, { from: 0n, to: 100n }), [1, 9]);
  assert.deepEqual(extrema(series, { from: 55n, to: 100n }), [3, 3]);
  assert.equal(extrema(series, { from: 61n, to: 100n }), null);
  assert.deepEqual([9n, 10n, 30n, 50n, 55n, 99n].map((at) => rowAt(series, at)), [-1, 0, -1, 2, 2, 3]);
  assert.equal(neighbor([series], 10n, true), 50n);
  assert.equal(neighbor([series], 50n, false), 10n);
  assert.equal(neighbor([series], 60n, true), null);
}

// An answer is decoded as it was encoded: header, then columns.
{
  const header = JSON.stringify({
    pixel_ns: "4", is_complete: true, left_out: 1, unreadable: 0,
    series: [{ label: "vda", path: "disk", unit: "B/s", rows: 1 }],
  });
  const text = header + " ".repeat((8 - ((header.length + 4) % 8)) % 8);
  const buffer = new ArrayBuffer(4 + text.length + 56);
  const data = new DataView(buffer);
  data.setUint32(0, text.length, true);
  new Uint8Array(buffer, 4).set(new TextEncoder().encode(text));
  const at = 4 + text.length;
  data.setBigInt64(at, BEGIN, true);
  data.setBigInt64(at + 8, BEGIN + 3n, true);
  [1.5, 4.5, 2.5, 3.5].forEach((value, column) => data.setFloat64(at + 16 + column * 8, value, true));
  data.setBigUint64(at + 48, 7n, true);
  const { pixel, series, leftOut } = decode(buffer);
  assert.deepEqual([pixel, leftOut, series[0]!.first, series[0]!.last], [4n, 1, [BEGIN], [BEGIN + 3n]]);
  assert.deepEqual([series[0]!.min, series[0]!.max, series[0]!.count], [[1.5], [4.5], [7]]);
}

// Times are exact to the nanosecond, and ticks are round.
assert.match(exactText(BEGIN), /:\d\d\.123456789$/);
assert.match(zoneText(BEGIN), /^[+-]\d\d:\d\d$/);
assert.match(timeText(BEGIN, 1000000n), /\.123$/);
assert.equal(tickStep({ from: 0n, to: 100n }, 10), 10n);
for (const length of [10n, 1000n, 86400000000000n, 31536000000000000n]) {
  const found = ticks({ from: BEGIN, to: BEGIN + length }, 10);
  assert.ok(found.length >= 1 && found.length <= 11, `${length}: ${found.length}`);
  assert.ok(found.every(({ at }) => at >= BEGIN && at < BEGIN + length));
}

// A zoom keeps what is under the pointer, stays within the recording, and ends at ten nanoseconds.
{
  const whole = { from: BEGIN, to: BEGIN + 86400000000000n };
  let span = whole;
  const at = BEGIN + 43200000000001n;
  for (let turn = 0; turn < 4; turn += 1) span = zoomed(span, Math.exp(-4.4), at, whole);
  assert.ok(span.from <= at && at < span.to && span.to - span.from < 2000000n);
  for (let turn = 0; turn < 20; turn += 1) span = zoomed(span, 0.1, at, whole);
  assert.ok(span.to - span.from === 10n && span.from <= at && at <= span.to);
  const out = zoomed(whole, 1000, at, whole);
  assert.ok(out.from >= BEGIN - 8640000000001n && out.to - out.from <= 103680000000002n);
  assert.equal(timeAt({ from: 5n, to: 105n }, 0.5), 55n);
  assert.deepEqual(bounded({ from: 0n, to: 10n }, { from: 100n, to: 200n }), { from: 89n, to: 99n });
}

// Names are harmless, values have units, and the address holds the view.
assert.equal(shown("a\u001b[31m\u202eb"), "a\\u{1b}[31m\\u{202e}b");
assert.deepEqual(
  [valueText(1536, "B"), valueText(0.0123, "s"), valueText(78.44, "%"), valueText(12345, "/s"), valueText(3, "")],
  ["1.50 KiB", "12.3 ms", "78.4 %", "12.3 k/s", "3.00"],
);
assert.deepEqual(
  [shortText(50, "%"), shortText(0.5, "%"), shortText(1024, "B"), shortText(100, "%"), shortText(0, "")],
  ["50 %", "0.5 %", "1 KiB", "100 %", "0"],
);
{
  const held = {
    span: { from: BEGIN, to: BEGIN + 1n }, cursor: BEGIN, selection: null, isLive: false,
    pins: ['process.processes["<b>&#"].run_time', "cpu"], process: 4294967295,
  };
  assert.deepEqual({ ...parseHeld(heldText(held)) }, { ...held, token: null, ticket: null, at: null });
  assert.equal(parseHeld("#from=x&to=3&cursor=99999999999999999999").span, null);
  assert.equal(parseHeld("#process=-1").process, null);
}

/** Returns a timeline of one CPU; thread 0 of the table is the idle loop. */
function timelineOf(track: Track, threads: number, pixels = 0): Timeline {
  return {
    first: BEGIN, pixel: 64, pixels, isComplete: true, isExact: track.slices !== null, hasWakeups: true, leftOut: 0, unreadable: 0,
    threads: Array.from({ length: threads }, (_none, thread) => ({ thread, process: thread >> 1, name: `t${thread}` })),
    stretches: [{ from: BEGIN + 10n, to: BEGIN + 11n, kind: "lost", lost: 3 }],
    waiting: new Float64Array(pixels).fill(0.5), longest: new Float64Array(pixels).fill(9), tracks: [track],
  };
}

/** Returns random slices of a CPU, some of which last a nanosecond; between some of them nothing is known. */
function randomSlices(next: () => number, count: number, threads: number): Track {
  const slices: Slices = {
    begin: new Float64Array(count), end: new Float64Array(count), ready: new Float64Array(count), slept: new Float64Array(count),
    thread: new Uint16Array(count), waker: new Uint16Array(count), ended: new Uint16Array(count),
  };
  let at = 0;
  for (let row = 0; row < count; row += 1) {
    if (next() < 0.05) at += Math.floor(next() * 5000);
    slices.begin[row] = at;
    at += next() < 0.3 ? 1 : 1 + Math.floor(next() * 4000);
    slices.end[row] = at;
    slices.thread[row] = Math.floor(next() * threads);
  }
  return { cpu: 0, slices, cells: null };
}

// At every zoom each slice of a thread is a block or in the columns of the pixels that it touches,
// with its whole width, and nothing else is drawn; a column has the thread that ran longest in it.
for (let seed = 1; seed <= 40; seed += 1) {
  const next = random(seed);
  const track = randomSlices(next, 600, 7);
  const timeline = timelineOf(track, 7);
  const { begin, end, thread } = track.slices!;
  const whole = end[end.length - 1]!;
  for (let zoom = 0; zoom < 6; zoom += 1) {
    const length = Math.ceil(whole / 8 ** zoom) + 1;
    const from = Math.floor(next() * (whole - length));
    const span = { from: BEGIN + BigInt(from), to: BEGIN + BigInt(from + length) };
    const width = 1 + Math.floor(next() * 1500);
    const { blocks, columns } = trackDrawing(timeline, track, span, width, 1);
    const scale = width / length;
    const blocked = new Set(blocks.map(({ row }) => row));
    const pixels = new Map(columns.map((column) => [column.left, column]));
    const ran = new Map<number, Map<number, number>>();
    for (let row = 0; row < begin.length; row += 1) {
      const [left, right] = [(begin[row]! - from) * scale, (end[row]! - from) * scale];
      if (right <= 0 || left >= width) continue;
      assert.equal(blocked.has(row), right - left >= 1, "slices of a pixel and more are blocks");
      if (right - left >= 1 || thread[row] === 0) continue;
      for (let pixel = Math.floor(left); pixel < right; pixel += 1) {
        const part = Math.min(right, pixel + 1) - Math.max(left, pixel);
        const threads = ran.get(pixel) ?? new Map<number, number>();
        threads.set(thread[row]!, (threads.get(thread[row]!) ?? 0) + part);
        ran.set(pixel, threads);
      }
    }
    for (const [pixel, threads] of ran) {
      const column = pixels.get(pixel)!;
      assert.ok(column !== undefined && column.right === pixel + 1, `${pixel}`);
      const busy = [...threads.values()].reduce((sum, one) => sum + one, 0);
      const own = [...threads].reduce((sum, [one, share]) => sum + (one >> 1 === 1 ? share : 0), 0);
      assert.ok(Math.abs(column.busy - busy) < 1e-6 && Math.abs(column.own - own) < 1e-6);
      assert.ok([...threads.values()].every((share) => share <= threads.get(column.top)! + 1e-9));
      const ofTop = [...threads].reduce((sum, [one, share]) => sum + (one >> 1 === column.top >> 1 ? share : 0), 0);
      assert.ok(column.topShare > 0 && Math.abs(column.topShare - ofTop) < 1e-6);
      assert.equal(column.threads, threads.size);
    }
    for (const column of columns) assert.ok(ran.has(column.left) || column.left < 0, `nothing ran at ${column.left}`);
  }
}

// A cursor finds the slice at its time, the nearest one within a distance, and those beside it.
{
  const slices: Slices = {
    begin: Float64Array.of(0, 100, 103, 500), end: Float64Array.of(100, 103, 400, 600), ready: new Float64Array(4), slept: new Float64Array(4),
    thread: Uint16Array.of(0, 2, 0, 3), waker: new Uint16Array(4), ended: new Uint16Array(4),
  };
  const track: Track = { cpu: 3, slices, cells: null };
  const timeline = timelineOf(track, 4);
  const at = (time: number) => BEGIN + BigInt(time);
  assert.deepEqual([-1, 0, 99, 100, 102, 103, 399, 400, 450, 599, 600].map((time) => trackRowAt(timeline, track, at(time))), [-1, 0, 0, 1, 1, 2, 2, -1, -1, 3, -1]);
  assert.deepEqual([101, 95, 110, 200, 495].map((time) => nearestSlice(timeline, track, at(time), 20)), [1, 1, 1, -1, 3]);
  assert.deepEqual([neighborSlice(timeline, track, at(100), true), neighborSlice(timeline, track, at(100), false)], [at(500), null]);
  assert.deepEqual([neighborSlice(timeline, track, at(501), false), neighborSlice(timeline, track, at(500), false)], [at(500), at(100)]);
  assert.deepEqual(stretchPlaces(timeline, { from: BEGIN, to: BEGIN + 1000n }, 100), [{ left: 1, right: 2, kind: "lost" }]);
  assert.deepEqual(stretchPlaces(timeline, { from: BEGIN + 11n, to: BEGIN + 1000n }, 100), []);
}

// Pixels of the server are drawn where they are; after a zoom out those of one pixel are together.
{
  const count = 100;
  const cells: Cells = {
    top: new Uint16Array(count).fill(2), threads: new Uint16Array(count).fill(1), busy: new Uint16Array(count).fill(13107),
    topShare: new Uint16Array(count).fill(13107), topProcess: new Uint16Array(count).fill(13107), known: new Uint16Array(count).fill(65535), own: new Uint16Array(count), switches: new Uint32Array(count),
  };
  cells.known[50] = 0;
  [cells.top[10], cells.busy[10], cells.topProcess[10]] = [3, 65535, 65535];
  const track: Track = { cpu: 0, slices: null, cells };
  const timeline = timelineOf(track, 4, count);
  const span = { from: BEGIN, to: BEGIN + 6400n };
  const wide = trackDrawing(timeline, track, span, 1000, null).columns;
  assert.equal(wide.length, count - 1, "a pixel of which nothing is known is not drawn");
  assert.deepEqual([wide[10]!.left, wide[10]!.right, wide[10]!.top, wide[10]!.busy], [100, 110, 3, 1]);
  const narrow = trackDrawing(timeline, track, span, 10, null).columns;
  assert.equal(narrow.length, 10);
  assert.deepEqual([narrow[0]!.top, narrow[1]!.top], [2, 3]);
  assert.ok(Math.abs(narrow[1]!.busy - (9 * 0.2 + 1) / 10) < 1e-9, `${narrow[1]!.busy}`);
  assert.equal(trackRowAt(timeline, track, BEGIN + 50n * 64n), -1);
  assert.equal(trackRowAt(timeline, track, BEGIN + 51n * 64n), 51);
  assert.equal(neighborSlice(timeline, track, BEGIN, true), BEGIN + 640n, "where another thread is on top");
  assert.deepEqual(waitingColumns(timeline, span, 100)[1], { left: 1, right: 2, mean: 0.5, longest: 9 });
}

// An answer with a timeline is decoded as it was encoded: columns are padded to eight bytes.
{
  const header = JSON.stringify({
    pixel_ns: "64", first_ns: String(BEGIN), pixels: 1, is_complete: true, is_exact: true, has_wakeups: false, left_out: 2, unreadable: 1,
    threads: [[7, 5, "<b>"]], stretches: [[String(BEGIN), String(BEGIN + 9n), "stopped", 0]], tracks: [{ cpu: 11, rows: 1 }],
  });
  const text = header + " ".repeat((8 - ((header.length + 4) % 8)) % 8);
  const buffer = new ArrayBuffer(4 + text.length + 9 * 8);
  const data = new DataView(buffer);
  data.setUint32(0, text.length, true);
  new Uint8Array(buffer, 4).set(new TextEncoder().encode(text));
  const at = 4 + text.length;
  data.setFloat64(at, 0.25, true);
  data.setFloat64(at + 8, 17, true);
  data.setBigInt64(at + 16, BEGIN + 1n, true);
  data.setBigInt64(at + 24, BEGIN + 5n, true);
  data.setFloat64(at + 32, NaN, true);
  data.setFloat64(at + 40, 3, true);
  data.setUint16(at + 56, 65535, true);
  data.setUint16(at + 64, 1, true);
  const timeline = decodeTimeline(buffer);
  const track = timeline.tracks[0]!;
  assert.deepEqual([timeline.first, timeline.pixel, timeline.isExact, timeline.leftOut, track.cpu], [BEGIN, 64, true, 2, 11]);
  assert.deepEqual([timeline.waiting[0], timeline.longest[0], track.slices!.begin[0], track.slices!.end[0]], [0.25, 17, 1, 5]);
  assert.deepEqual([track.slices!.ready[0], track.slices!.slept[0], track.slices!.thread[0]], [NaN, 3, 0]);
  assert.deepEqual([track.slices!.waker[0], track.slices!.ended[0], timeline.threads[0]!.name], [65535, 1, "<b>"]);
  assert.deepEqual(timeline.stretches, [{ from: BEGIN, to: BEGIN + 9n, kind: "stopped", lost: 0 }]);
}
// An answer keeps each digit of integers, and strings with digits, quotes and backslashes.
{
  const json = `{"wall_ns":${BEGIN},"at":-${BEGIN},"near":9007199254740991,"far":[9007199254740992],"x":1.25e-17,"y":18446744073709551615.5}`;
  const exact = { wall_ns: String(BEGIN), at: `-${BEGIN}`, near: 9007199254740991, far: ["9007199254740992"], x: 1.25e-17, y: 2 ** 64 };
  assert.deepEqual(parsed(json), exact);
  const next = random(5);
  for (let turn = 0; turn < 500; turn++) {
    const text = Array.from({ length: 24 }, () => '"\\0123456789:,{}[ '[Math.floor(next() * 19)]).join("");
    assert.deepEqual(parsed(JSON.stringify({ [text]: [text, 7, { k: text }] })), { [text]: [text, 7, { k: text }] });
  }
}
console.log("all passed");
