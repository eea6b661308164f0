// The timeline of the CPUs: a track for each of them, on one canvas.

import { color, make } from "./dom";
import {
  decodeTimeline, ENDS, trackDrawing, trackRowAt, nearestSlice, neighborSlice, stretchesAt, stretchPlaces, waitingColumns,
  type Column, type Track, type Stretch, type Thread, type Timeline,
} from "./timeline";
import type { Asked, Shown } from "./shown";
import { exactText, lengthText, significant } from "./times";
import { plural, shown } from "./units";
import type { View } from "./view";

/** Colors of processes, of those of the style sheet: one of them looks like that of the others. */
const COLORS = [0, 1, 2, 3, 5, 6, 7];
/** Height of a track, by how many there are. */
const HEIGHTS: [number, number][] = [[12, 20], [24, 15], [64, 9], [Infinity, 5]];
const LABEL_HEIGHT = 13;
const WAITING_HEIGHT = 22;
/** Least width of a slice, in pixels, that has its name, and that says whether it was preempted. */
const NAMED_WIDTH = 30;
const MARKED_WIDTH = 7;
/** Distance from a slice, in pixels, within which the cursor is at it. */
const SNAP = 4;
/** Least height of what ran, in pixels: one switch in a day is seen. */
const SEEN_HEIGHT = 4;
/** How much of a process that is not the chosen one shows. */
const DIMMED = 0.2;
const STRETCHES: Record<Stretch["kind"], string> = {
  gap: "not recorded",
  lost: "records lost by the kernel",
  stopped: "stopped: switches exceeded their budget",
};

interface Palette {
  processes: string[];
  names: Record<"back" | "idle" | "grid" | "text" | "quiet" | "gap" | "hatch" | "accent" | "waiting" | "mark", string>;
}

export class TimelineChart implements Shown {
  readonly element = make("article", "chart timeline");
  readonly source = null;
  request: AbortController | null = null;
  error = "";
  /** The process that stands out. */
  process: number | null = null;
  private timeline: Timeline | null = null;
  private pointed = -1;
  private chosen = -1;
  private width = 0;
  private readonly title = make("h2", "", "CPUs");
  private readonly note = make("span", "note");
  private readonly detail = make("p", "detail");
  private readonly area = make("div", "area");
  private readonly canvas = make("canvas");
  private readonly box = make("div", "slice-box");

  constructor(private readonly view: View) {
    this.element.dataset["id"] = "CPUs";
    this.element.tabIndex = -1;
    const head = make("div", "head");
    head.append(this.title, make("span", "values"), this.note);
    this.box.hidden = true;
    this.area.append(this.canvas, this.box);
    this.element.append(head, this.detail, this.area);
  }

  /** How many tracks there are. */
  get tracks(): number {
    return this.timeline?.tracks.length ?? 0;
  }

  async load({ api, span, px }: Asked, signal: AbortSignal): Promise<boolean> {
    const query: Record<string, string> = { from: String(span.from), to: String(span.to), px: String(px) };
    if (this.process !== null) query["process"] = String(this.process);
    const bytes = await api.bytes("tasks", query, signal);
    if (signal.aborted) return true;
    this.timeline = decodeTimeline(bytes);
    return this.timeline.isComplete;
  }

  resize(): void {
    this.width = this.element.clientWidth;
  }

  private get trackHeight(): number {
    return HEIGHTS.find(([most]) => this.tracks <= most)![1];
  }

  /** Draws the timeline anew for the view. */
  redraw(): void {
    const ratio = devicePixelRatio || 1;
    const height = Math.max(1, this.tracks) * this.trackHeight + WAITING_HEIGHT;
    const [deviceWidth, deviceHeight] = [Math.round(this.width * ratio), Math.round(height * ratio)];
    if (deviceWidth === 0) return;
    if (this.canvas.width !== deviceWidth || this.canvas.height !== deviceHeight) {
      [this.canvas.width, this.canvas.height] = [deviceWidth, deviceHeight];
      this.canvas.style.width = `${this.width}px`;
      this.canvas.style.height = `${height}px`;
      // It was chosen before its tracks were known.
      if (this.chosen >= 0) this.element.scrollIntoView({ block: "nearest" });
    }
    const ctx = this.canvas.getContext("2d")!;
    ctx.clearRect(0, 0, deviceWidth, deviceHeight);
    const timeline = this.timeline;
    if (timeline !== null) {
      const [left, width] = [this.view.left * ratio, deviceWidth - this.view.left * ratio];
      const palette = this.palette();
      timeline.tracks.forEach((track, number) => {
        ctx.save();
        const top = Math.round(number * this.trackHeight * ratio);
        const bottom = Math.round((number + 1) * this.trackHeight * ratio);
        this.drawTrack(ctx, palette, track, { left, top, width, height: bottom - top - ratio }, ratio);
        ctx.restore();
      });
      this.drawWaiting(ctx, palette, { left, top: deviceHeight - (WAITING_HEIGHT - 4) * ratio, width, height: (WAITING_HEIGHT - 6) * ratio }, ratio);
      this.drawStretches(ctx, palette, { left, top: 0, width, height: deviceHeight - 2 * ratio }, ratio);
      this.drawLabels(ctx, palette, left, ratio);
    }
    this.showValues();
  }

  private palette(): Palette {
    const names = ["back", "idle", "grid", "text", "quiet", "gap", "hatch", "accent", "waiting", "mark"] as const;
    return {
      processes: COLORS.map((number) => color(`c${number}`)),
      names: Object.fromEntries(names.map((name) => [name, color(name)])) as Palette["names"],
    };
  }

  private colorOf(palette: Palette, thread: Thread | undefined): string {
    return thread === undefined ? palette.names.quiet : processColor(palette, thread.process);
  }

  private drawTrack(ctx: CanvasRenderingContext2D, palette: Palette, track: Track, box: Box, ratio: number): void {
    const timeline = this.timeline!;
    ctx.beginPath();
    ctx.rect(box.left, box.top, box.width, box.height);
    ctx.clip();
    const { blocks, columns } = trackDrawing(timeline, track, this.view.span, box.width, this.process);
    ctx.font = `${10 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    for (const { left, right, row } of blocks) {
      const thread = timeline.threads[track.slices!.thread[row]!];
      const x = box.left + left;
      const width = right - left;
      if (thread?.thread === 0) {
        ctx.fillStyle = palette.names.idle;
        ctx.fillRect(x, box.top, width, box.height);
        continue;
      }
      const isDimmed = this.process !== null && thread?.process !== this.process;
      ctx.globalAlpha = isDimmed ? DIMMED : 1;
      ctx.fillStyle = this.colorOf(palette, thread);
      // Slices of one color stay apart.
      const gap = width > 3 * ratio ? ratio : 0;
      ctx.fillRect(x, box.top, width - gap, box.height);
      if (track.slices!.ended[row] === 0 && width > MARKED_WIDTH * ratio) {
        ctx.fillStyle = palette.names.back;
        ctx.beginPath();
        ctx.moveTo(x + width - gap - 5 * ratio, box.top);
        ctx.lineTo(x + width - gap, box.top);
        ctx.lineTo(x + width - gap, box.top + 5 * ratio);
        ctx.fill();
      }
      const begin = Math.max(x, box.left) + 3 * ratio;
      const space = Math.min(x + width, box.left + box.width) - begin - 6 * ratio;
      if (!isDimmed && space > NAMED_WIDTH * ratio && box.height > 11 * ratio) {
        ctx.fillStyle = palette.names.back;
        ctx.fillText(fitted(ctx, threadText(thread), space), begin, box.top + box.height / 2);
      }
      ctx.globalAlpha = 1;
    }
    for (const column of columns) this.drawColumn(ctx, palette, column, box, ratio);
  }

  private drawColumn(ctx: CanvasRenderingContext2D, palette: Palette, column: Column, box: Box, ratio: number): void {
    const x = Math.floor(box.left + column.left);
    const width = Math.max(1, Math.floor(box.left + column.right) - x);
    const least = Math.ceil(SEEN_HEIGHT * ratio);
    const fill = (style: string, from: number, share: number, alpha: number) => {
      const height = Math.max(from === 0 ? least : Math.ceil(ratio), Math.round(share * box.height));
      ctx.globalAlpha = alpha;
      ctx.fillStyle = style;
      const bottom = box.top + box.height - Math.round(from * box.height);
      ctx.fillRect(x, bottom - height, width, height);
    };
    ctx.fillStyle = palette.names.idle;
    const known = Math.round(column.known * box.height);
    ctx.fillRect(x, box.top + box.height - known, width, known);
    if (column.threads > 0) {
      const top = this.timeline!.threads[column.top];
      const isDimmed = this.process !== null;
      if (column.busy > column.topShare) fill(palette.names.quiet, column.topShare, column.busy - column.topShare, isDimmed ? DIMMED : 0.5);
      fill(this.colorOf(palette, top), 0, column.topShare, isDimmed ? DIMMED : 1);
      if (this.process !== null && column.own > 0) fill(processColor(palette, this.process), 0, column.own, 1);
    }
    ctx.globalAlpha = 1;
  }

  private drawWaiting(ctx: CanvasRenderingContext2D, palette: Palette, box: Box, ratio: number): void {
    ctx.fillStyle = palette.names.grid;
    ctx.fillRect(box.left, box.top + box.height, box.width, ratio);
    const columns = waitingColumns(this.timeline!, this.view.span, box.width);
    const most = columns.reduce((most, { mean }) => Math.max(most, mean), 1);
    ctx.fillStyle = palette.names.waiting;
    for (const { left, right, mean } of columns) {
      const x = Math.floor(box.left + Math.max(0, left));
      const width = Math.max(1, Math.floor(box.left + Math.min(right, box.width)) - x);
      const height = Math.max(Math.ceil(ratio), Math.round((mean / most) * box.height));
      ctx.fillRect(x, box.top + box.height - height, width, height);
    }
  }

  /** Hatches what is not known, as charts do; where records were dropped, what is known shows through. */
  private drawStretches(ctx: CanvasRenderingContext2D, palette: Palette, box: Box, ratio: number): void {
    for (const { left, right, kind } of stretchPlaces(this.timeline!, this.view.span, box.width)) {
      ctx.save();
      ctx.beginPath();
      ctx.rect(box.left + left, box.top, right - left, box.height);
      ctx.clip();
      if (kind !== "lost") {
        ctx.fillStyle = palette.names.gap;
        ctx.fillRect(box.left + left, box.top, right - left, box.height);
      }
      ctx.strokeStyle = kind === "lost" ? palette.names.mark : palette.names.hatch;
      ctx.lineWidth = ratio;
      ctx.beginPath();
      const step = 6 * ratio;
      for (let x = box.left + left - box.height - ((left - box.height) % step); x < box.left + right; x += step) {
        ctx.moveTo(x, box.top + box.height);
        ctx.lineTo(x + box.height, box.top);
      }
      ctx.stroke();
      ctx.restore();
    }
  }

  private drawLabels(ctx: CanvasRenderingContext2D, palette: Palette, left: number, ratio: number): void {
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "right";
    const step = Math.ceil(LABEL_HEIGHT / this.trackHeight);
    this.timeline!.tracks.forEach(({ cpu }, number) => {
      if (number % step !== 0 && number !== this.chosen) return;
      ctx.fillStyle = number === this.chosen ? palette.names.accent : palette.names.quiet;
      ctx.fillText(`CPU ${cpu}`, left - 5 * ratio, (number + 0.5) * this.trackHeight * ratio);
    });
    ctx.fillStyle = palette.names.quiet;
    ctx.fillText("waiting", left - 5 * ratio, this.canvas.height - (WAITING_HEIGHT / 2 - 1) * ratio);
    ctx.textAlign = "left";
  }

  /** Says who ran at the cursor, on the track that the pointer or the keys have chosen. */
  showValues(): void {
    const timeline = this.timeline;
    const first = timeline?.tracks[0]?.cpu;
    const last = timeline?.tracks[this.tracks - 1]?.cpu;
    this.title.textContent = first === undefined || first === last ? `CPU ${first ?? "s"}`.replace(" s", "s") : `CPUs ${first} to ${last}`;
    const notes = [];
    if (this.process !== null) notes.push(`process ${this.process} (h, Esc)`);
    if ((timeline?.leftOut ?? 0) > 0) notes.push(`+${timeline!.leftOut} CPUs`);
    if (this.request !== null || timeline?.isComplete === false) notes.push("reading");
    if ((timeline?.unreadable ?? 0) > 0) notes.push(`${timeline!.unreadable} damaged`);
    if (timeline !== null && timeline.isComplete && !timeline.hasWakeups && this.tracks > 0) notes.push("no wakeups: waits after sleep count as sleep");
    if (this.error !== "") notes.push(this.error);
    if (timeline?.isComplete && this.tracks === 0 && this.error === "") notes.push("no switches");
    this.note.textContent = notes.join(", ");
    this.showSlice();
  }

  private showSlice(): void {
    const { cursor, span } = this.view;
    const number = this.pointed >= 0 ? this.pointed : this.chosen;
    const track = this.timeline?.tracks[number];
    const isInView = cursor !== null && cursor >= span.from && cursor < span.to;
    this.box.hidden = true;
    if (this.timeline === null || !isInView || (track === undefined && number !== this.tracks)) {
      this.detail.textContent = "";
      return;
    }
    if (track === undefined) {
      this.detail.textContent = this.waitingText(cursor);
      return;
    }
    const missing = stretchesAt(this.timeline, cursor).map(({ kind, lost }) => (lost > 0 ? `${lost} ${STRETCHES[kind]}` : STRETCHES[kind]));
    const row = this.rowAt(track, cursor);
    const text = row < 0 ? "nothing is known" : track.slices !== null ? this.sliceText(track, row) : this.cellText(track, row);
    const isMissing = row < 0 && missing.length > 0;
    this.detail.replaceChildren(make("b", "", `CPU ${track.cpu}  `), isMissing ? missing.join("; ") : [text, ...missing].join("; "));
    if (row >= 0) this.showBox(track, number, row);
  }

  private rowAt(track: Track, at: bigint): number {
    const row = trackRowAt(this.timeline!, track, at);
    const isIdle = row < 0 || (track.slices !== null && this.timeline!.threads[track.slices.thread[row]!]?.thread === 0);
    if (!isIdle) return row;
    const distance = (Number(this.view.span.to - this.view.span.from) / Math.max(1, this.width - this.view.left)) * SNAP;
    const near = nearestSlice(this.timeline!, track, at, distance);
    return near >= 0 ? near : row;
  }

  private showBox(track: Track, number: number, row: number): void {
    const timeline = this.timeline!;
    const slices = track.slices;
    const [begin, end] = slices !== null ? [slices.begin[row]!, slices.end[row]!] : [row * timeline.pixel, (row + 1) * timeline.pixel];
    const width = this.width - this.view.left;
    const from = Number(timeline.first - this.view.span.from);
    const scale = width / Number(this.view.span.to - this.view.span.from);
    const left = Math.max(0, (from + begin) * scale);
    const right = Math.min(width, (from + end) * scale);
    if (right < 0 || left > width) return;
    this.box.hidden = false;
    this.box.style.left = `${this.view.left + left}px`;
    this.box.style.width = `${Math.max(2, right - left)}px`;
    this.box.style.top = `${number * this.trackHeight}px`;
    this.box.style.height = `${this.trackHeight - 1}px`;
  }

  private sliceText(track: Track, row: number): string {
    const timeline = this.timeline!;
    const slices = track.slices!;
    const thread = timeline.threads[slices.thread[row]!];
    const begin = timeline.first + BigInt(slices.begin[row]!);
    const length = nanoseconds(slices.end[row]! - slices.begin[row]!);
    const when = `${exactText(begin).slice(11)} for ${length}`;
    if (thread?.thread === 0) return `idle  ${when}`;
    const [ready, slept] = [slices.ready[row]!, slices.slept[row]!];
    const waker = timeline.threads[slices.waker[row]!];
    const waits = [];
    if (ready > 0) waits.push(`it waited ${nanoseconds(ready)} for the CPU`);
    if (slept > 0) waits.push(`slept ${nanoseconds(slept)}`);
    if (waker !== undefined) waits.push(`woken by ${waker.thread === 0 ? "an interrupt" : threadText(waker)}`);
    const before = waits.length === 0 ? "" : `; before: ${waits.join(", ")}`;
    return `${threadText(thread)}  ${when}, ${ENDS[slices.ended[row]!] ?? ""}${before}`;
  }

  private cellText(track: Track, row: number): string {
    const timeline = this.timeline!;
    const cells = track.cells!;
    const percent = (share: number) => `${significant((share / 65535) * 100)} %`;
    const counts = `${plural(cells.threads[row]!, "thread")}, ${plural(cells.switches[row]!, "switch", "switches")} in ${nanoseconds(timeline.pixel)}`;
    const own = this.process !== null ? `, process ${this.process} ${percent(cells.own[row]!)}` : "";
    if (cells.threads[row] === 0) return `idle  ${counts}`;
    const top = cells.top[row] === 65534 ? "a thread" : threadText(timeline.threads[cells.top[row]!]);
    return `${top}  ${percent(cells.topShare[row]!)} of ${percent(cells.busy[row]!)} busy; ${counts}${own}`;
  }

  private waitingText(at: bigint): string {
    const timeline = this.timeline!;
    const row = Math.floor(Number(at - timeline.first) / timeline.pixel);
    if (row < 0 || row >= timeline.pixels) return "";
    if (timeline.longest[row] === 0) return "nobody waited for a CPU";
    return `${significant(timeline.waiting[row]!)} threads waited for a CPU on average; the longest wait took ${nanoseconds(timeline.longest[row]!)}`;
  }

  /** Takes note of the track under the pointer; the row of who waits is the one after the last track. */
  point(event: PointerEvent | null): void {
    const y = event === null ? -1 : event.clientY - this.canvas.getBoundingClientRect().top;
    const number = Math.floor(y / this.trackHeight);
    this.pointed = y < 0 || y > this.tracks * this.trackHeight + WAITING_HEIGHT ? -1 : Math.min(number, this.tracks);
  }

  /** Chooses a track by its number; none by -1. */
  choose(number: number): void {
    if (this.chosen === number) return;
    this.chosen = number;
    this.pointed = -1;
    this.redraw();
  }

  /** Returns the process at the cursor. */
  processAt(at: bigint): number | null {
    const track = this.timeline?.tracks[this.pointed >= 0 ? this.pointed : this.chosen];
    if (track === undefined) return null;
    const row = this.rowAt(track, at);
    const thread = row < 0 ? undefined : this.timeline!.threads[(track.slices?.thread ?? track.cells!.top)[row]!];
    return thread === undefined || thread.thread === 0 ? null : thread.process;
  }

  /** Returns where the slice before or after a time begins, on the chosen track. */
  neighbor(at: bigint, isForward: boolean): bigint | null {
    const track = this.timeline?.tracks[this.chosen];
    return track === undefined ? null : neighborSlice(this.timeline!, track, at, isForward);
  }
}

interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** Returns the color of a process, the same in each view. */
function processColor(palette: Palette, process: number): string {
  // Processes with neighboring numbers get different colors.
  return palette.processes[(Math.imul(process, 0x9e3779b1) >>> 16) % COLORS.length]!;
}

function threadText(thread: Thread | undefined): string {
  if (thread === undefined) return "?";
  const ids = thread.thread === thread.process ? `${thread.process}` : `${thread.process}/${thread.thread}`;
  return `${shown(thread.name)} [${ids}]`;
}

/** Returns as much of a text as fits. */
function fitted(ctx: CanvasRenderingContext2D, text: string, width: number): string {
  const full = ctx.measureText(text).width;
  return full <= width ? text : text.slice(0, Math.max(1, Math.floor((text.length * width) / full)));
}

function nanoseconds(length: number): string {
  return lengthText(BigInt(Math.round(length)));
}
