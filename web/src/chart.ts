// A chart: uPlot has scales, grid and canvas; the lines are drawn here, from extrema.

import uPlot from "uplot";
import type { Field, Flag } from "./api";
import { color, make } from "./dom";
import { append, decode, drawing, extrema, rowAt, type Envelope, type Series } from "./envelope";
import type { Asked, Shown } from "./shown";
import { ticks, xOf, type View } from "./view";
import { fullText, shortText, shown, valueText } from "./units";

const HEIGHT = 92;
/** Lines whose value is in the title; the others are drawn alone. */
const NAMED_MAX = 3;
/** Distance between samples, in pixels, from which each of them has a dot. */
const DOT_DISTANCE = 7;
/** Live rows of a series that wait for an answer: more than come within its time limit. */
const HELD_MAX = 4096;
export const COLORS = 8;
const BYTE_STEPS = Array.from({ length: 60 }, (_none, power) => 2 ** (power - 4));

export class Chart implements Shown {
  readonly element = make("article", "chart");
  readonly pinButton = make("button", "pin");
  envelope: Envelope | null = null;
  error = "";
  request: AbortController | null = null;
  private readonly title = make("h2");
  private readonly values = make("span", "values");
  private readonly note = make("span", "note");
  private readonly plot: uPlot;
  private range: [number, number] = [0, 1];
  /** What came while an answer was on its way, which ends before it. */
  private held: { added: Series[]; before: bigint }[] = [];

  constructor(readonly field: Field, private readonly view: View, private readonly flags: () => Flag[]) {
    this.element.dataset["id"] = field.id;
    this.element.tabIndex = -1;
    this.title.textContent = shown(field.id);
    if (field.meaning) this.title.title = shown(field.meaning);
    this.pinButton.type = "button";
    const head = make("div", "head");
    head.append(this.pinButton, this.title, this.values, this.note);
    const area = make("div", "area");
    this.element.append(head, area);
    this.plot = new uPlot(this.options(), [[0, 1], [null, null]], area);
  }

  private options(): uPlot.Options {
    const grid = { stroke: () => color("grid"), width: 1 };
    return {
      width: 300,
      height: HEIGHT,
      padding: [4, 0, 4, 0],
      legend: { show: false },
      cursor: { show: false },
      select: { show: false, left: 0, top: 0, width: 0, height: 0 },
      scales: { x: { time: false, range: [0, 1] }, y: { range: () => this.range } },
      axes: [
        { show: true, size: 0, grid, ticks: { show: false }, values: () => [], splits: (u) => this.splits(u) },
        {
          size: () => this.view.left,
          stroke: () => color("quiet"),
          font: "11px system-ui, sans-serif",
          gap: 4,
          space: 28,
          ticks: { show: false },
          grid,
          // Round numbers of bytes are powers of two.
          ...(this.field.unit.startsWith("B") ? { incrs: BYTE_STEPS } : {}),
          values: (_u, splits) => splits.map((split) => shortText(split, this.field.unit)),
        },
      ],
      series: [{}, { show: true, scale: "y", paths: () => null, points: { show: false } }],
      hooks: { draw: [(u) => this.draw(u)] },
    };
  }

  private splits(u: uPlot): number[] {
    return ticks(this.view.span, u.width / 110).map(({ at }) => xOf(at, this.view.span, 1));
  }

  get source(): string {
    return this.field.source ?? this.field.id.split(/[.[]/)[0]!;
  }

  async load({ api, span, px }: Asked, signal: AbortSignal): Promise<boolean> {
    const query = { field: this.field.id, from: String(span.from), to: String(span.to), px: String(px) };
    const bytes = await api.bytes("range", query, signal);
    if (signal.aborted) return true;
    this.envelope = decode(bytes);
    // Rows that the answer has are not added twice.
    for (const { added, before } of this.held.splice(0)) append(this.envelope, added, before);
    return this.envelope.isComplete;
  }

  /** Adds live rows, and forgets those that ended before a time. */
  add(added: Series[], before: bigint): void {
    if (this.envelope !== null && this.request === null) append(this.envelope, added, before);
    else if (this.held.push({ added, before }) > HELD_MAX) this.held.shift();
  }

  resize(): void {
    const width = this.element.clientWidth;
    if (width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }

  /** Draws the chart anew for the view. */
  redraw(): void {
    this.range = this.valueRange();
    this.plot.setData([[0, 1], [null, null]], true);
    // The axis of time is the same to uPlot, but its ticks have moved.
    this.plot.redraw(false, true);
    this.showValues();
  }

  private valueRange(): [number, number] {
    let [min, max] = [Infinity, -Infinity];
    for (const series of this.envelope?.series ?? []) {
      const own = extrema(series, this.view.span);
      if (own !== null) [min, max] = [Math.min(min, own[0]), Math.max(max, own[1])];
    }
    if (min > max) return [0, 1];
    // From 0, unless that would flatten what moves; a share is always of the whole, and what moves
    // less than a part in ten thousand does not move.
    const isSteady = max - min < 1e-4 * max;
    if (min >= 0 && (this.field.unit === "%" || max - min > 0.1 * max || isSteady)) min = 0;
    if (min === max) [min, max] = min === 0 ? [0, 1] : [min - Math.abs(min) / 10, max + Math.abs(max) / 10];
    const margin = (max - min) * 0.06;
    return [min === 0 ? 0 : min - margin, max + margin];
  }

  /** Shows the values at the cursor, else the newest ones. */
  showValues(): void {
    const { cursor, span } = this.view;
    const at = cursor ?? span.to - 1n;
    const texts: { text: string; full: string; series: number }[] = [];
    (this.envelope?.series ?? []).forEach((series, number) => {
      const row = rowAt(series, at);
      if (row < 0) return;
      const [min, max] = [series.min[row]!, series.max[row]!];
      const label = series.label === null ? "" : `${shown(series.label)} `;
      const inside = cursor === null ? null : series.last[row]! >= at;
      const value = (one: number) => valueText(one, series.unit);
      // Within a pixel of many samples a cursor is at all of them.
      const isRange = inside === true && min !== max;
      const isWide = isRange && value(min) !== value(max);
      const text = isWide ? `${value(min)} to ${value(max)}` : value(isRange ? max : series.lastValue[row]!);
      const full = isRange
        ? `${fullText(min, series.unit)} to ${fullText(max, series.unit)}, ${series.count[row]} values`
        : fullText(series.lastValue[row]!, series.unit);
      texts.push({ text: label + text, full: label + full, series: number });
    });
    this.values.replaceChildren(
      ...texts.slice(0, NAMED_MAX).map(({ text, full, series }) => {
        const element = make("span", `value c${series % COLORS}`, text);
        element.title = full;
        return element;
      }),
    );
    const more = (this.envelope?.series.length ?? 0) - NAMED_MAX + (this.envelope?.leftOut ?? 0);
    const notes = [];
    if (more > 0) notes.push(`+${more}`);
    if (this.request !== null || this.envelope?.isComplete === false) notes.push("reading");
    if ((this.envelope?.unreadable ?? 0) > 0) notes.push(`${this.envelope!.unreadable} damaged`);
    if (this.error !== "") notes.push(this.error);
    if (this.error === "" && this.request === null && this.envelope !== null && texts.length === 0) {
      notes.push(cursor === null ? "no values" : "no value here");
    }
    this.note.textContent = notes.join(", ");
  }

  private draw(u: uPlot): void {
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio || 1;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    const all = this.envelope?.series ?? [];
    const main = all.reduce<Series | null>(
      (best, one) => (best === null || one.count.length > best.count.length ? one : best),
      null,
    );
    if (main !== null) this.drawGaps(ctx, bbox, drawing(main, this.view.span, bbox.width).gaps, ratio);
    // The largest series is drawn last, above the others.
    for (let number = all.length - 1; number >= 0; number -= 1) {
      this.drawSeries(u, all[number]!, color(`c${number % COLORS}`), ratio);
    }
    ctx.lineWidth = ratio;
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    for (const flag of this.flags()) {
      ctx.strokeStyle = color(flag.kept === undefined ? "mark" : "snapshot");
      const x = Math.floor(bbox.left + xOf(BigInt(flag.wall_ns), this.view.span, bbox.width)) + 0.5;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  /** Hatches gaps: a pattern is seen in any color. */
  private drawGaps(ctx: CanvasRenderingContext2D, box: uPlot.BBox, gaps: [number, number][], ratio: number): void {
    const step = 6 * ratio;
    for (const [from, to] of gaps) {
      const left = Math.max(box.left, box.left + from);
      const right = Math.min(box.left + box.width, Math.max(box.left + to, left + ratio));
      if (right <= left) continue;
      ctx.fillStyle = color("gap");
      ctx.fillRect(left, box.top, right - left, box.height);
      ctx.save();
      ctx.beginPath();
      ctx.rect(left, box.top, right - left, box.height);
      ctx.clip();
      ctx.strokeStyle = color("hatch");
      ctx.lineWidth = ratio;
      ctx.beginPath();
      for (let x = left - box.height; x < right; x += step) {
        ctx.moveTo(x, box.top + box.height);
        ctx.lineTo(x + box.height, box.top);
      }
      ctx.stroke();
      ctx.restore();
    }
  }

  /**
   * Draws a series. Where points are side by side, each is a column that reaches back to the value
   * before: without a graphics card, a path with thousands of joins takes a browser half a second.
   */
  private drawSeries(u: uPlot, series: Series, stroke: string, ratio: number): void {
    const { ctx, bbox } = u;
    const y = (value: number) => u.valToPos(value, "y", true);
    const thick = 1.25 * ratio;
    ctx.strokeStyle = stroke;
    ctx.fillStyle = stroke;
    ctx.lineWidth = thick;
    ctx.lineJoin = "round";
    const column = (x: number, top: number, bottom: number) => {
      const height = Math.max(bottom - top, thick);
      ctx.fillRect(x - thick / 2, (top + bottom - height) / 2, thick, height);
    };
    for (const line of drawing(series, this.view.span, bbox.width).strokes) {
      ctx.beginPath();
      let before = { place: -Infinity, x: -Infinity, y: 0 };
      // The path ends at the point before.
      let isOpen = false;
      line.x.forEach((place, point) => {
        const x = bbox.left + Math.floor(place) + 0.5;
        const [enter, leave] = [y(line.enter[point]!), y(line.leave[point]!)];
        const [top, bottom] = [y(line.max[point]!), y(line.min[point]!)];
        if (x - before.x <= 1) {
          column(x, Math.min(top, before.y), Math.max(bottom, before.y));
          isOpen = false;
        } else {
          if (point > 0) {
            if (!isOpen) ctx.moveTo(before.x, before.y);
            ctx.lineTo(x, enter);
          }
          isOpen = point > 0 && enter === leave;
          if (point === 0 || bottom > top) column(x, top, bottom);
        }
        const after = (line.x[point + 1] ?? Infinity) - place;
        if (line.isSample[point] && Math.min(place - before.place, after) > DOT_DISTANCE * ratio) {
          ctx.fillRect(x - 1.75 * ratio, enter - 1.75 * ratio, 3.5 * ratio, 3.5 * ratio);
        }
        before = { place, x, y: leave };
      });
      ctx.stroke();
    }
  }

  destroy(): void {
    this.request?.abort();
    this.plot.destroy();
    this.element.remove();
  }
}
