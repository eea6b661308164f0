// Tests of what draws, without a browser. They run under node --test's assertions.

import assert from "node:assert/strict";
import { heldText, parseHeld } from "../src/address";
import { decode, drawing, emptySeries, extrema, neighbor, rowAt, xOf, type Series } from "../src/envelope";
import { exactText, tickStep, ticks, timeText } from "../src/times";
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
    pins: ['process.processes["<b>&#"].run_time', "cpu"],
  };
  assert.deepEqual({ ...parseHeld(heldText(held)) }, { ...held, token: null, at: null });
  assert.equal(parseHeld("#from=x&to=3&cursor=99999999999999999999").span, null);
}
console.log("all passed");
