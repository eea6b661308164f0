// The page: keys, pointer and answers change the view; everything is drawn from it.

import { heldText, parseHeld } from "./address";
import { Api, Refused, type Departure, type Explanation, type Field, type LiveEvent, type Flag, type Recording } from "./api";
import { drawAxis } from "./axis";
import { Chart } from "./chart";
import { button, find, make } from "./dom";
import { emptySeries, neighbor, rowAt, type Series } from "./envelope";
import { Panel } from "./panel";
import type { Shown } from "./shown";
import { exactText, lengthText, MS, S, zoneText, type Span } from "./times";
import { TimelineChart } from "./timeline_chart";
import { shown } from "./units";
import { bounded, timeAt, xOf, zoomed, type View } from "./view";

/** What a live view shows. */
const LIVE_LENGTH = 60n * S;
/** Pixels of an answer, at most. */
const PIXELS_MAX = 1536;
/** Wait after the view moved once more before charts are read: a gesture is many moves. */
const SETTLE_MS = 40;
/** Charts that live events do not have are read again after this time. */
const REREAD_MS = 1000;
/** Distance from a sample, in pixels, within which the cursor is at it. */
const SNAP = 5;
/** The longest past of a snapshot that the server accepts. */
const SNAPSHOT_SECONDS_MAX = 86400;
/** Requests in flight: a browser opens six connections, and the live events have one. */
const IN_FLIGHT_MAX = 4;

const stored = sessionStorage.getItem("token");
const asked = parseHeld(location.hash);
if (asked.token !== null) sessionStorage.setItem("token", asked.token);

const charts = find("#charts");
const axis = find("#axis");
const stateText = find("#state");
const cursorText = find("#cursor");
const panel = new Panel(find("#panel"), () => {
  layout();
  charts.focus();
});
const cursorLine = make("div", "cursor-line");
const selected = make("div", "selected");
const selectedTools = make("div", "tools");
selected.append(selectedTools);
charts.append(selected, cursorLine);

let api = new Api(asked.token ?? stored ?? "");
let recording: Recording;
let whole: Span = { from: 0n, to: 1n };
let known: Field[] = [];
let fields: Field[] = [];
let periods = new Map<string, number>();
let flags: Flag[] = [];
let pins: string[] = asked.pins;
let shownCharts: Chart[] = [];
let focused = 0;
let liveEvents: AbortController | null = null;
const visible = new Set<Shown>();
const waiting = new Set<Shown>();
let inFlight = 0;
/** The timeline of the CPUs; none without a source that has switches. */
let timeline: TimelineChart | null = null;
const view: View = { span: whole, cursor: asked.cursor, selection: asked.selection, isLive: false, left: 64 };

const watcher = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      const seen = allShown().find((one) => one.element === target);
      if (seen === undefined) continue;
      if (isIntersecting) visible.add(seen);
      else visible.delete(seen);
      if (isIntersecting) read(seen);
    }
  },
  { rootMargin: "200px" },
);

function allShown(): Shown[] {
  return timeline === null ? shownCharts : [...shownCharts, timeline];
}

function fieldOf(id: string): Field {
  const found = known.find((field) => field.id === id) ?? fields.find((field) => field.id === id);
  if (found !== undefined) return found;
  // A field of one element: its unit is that of all of them.
  const of = id.replace(/\["(?:[^"\\]|\\.)*"\]|\[[^\]]*\]/g, "[*]");
  const all = fields.find((field) => field.id === of);
  return { id, unit: all?.unit ?? "", meaning: all?.meaning ?? "" };
}

/** Makes the charts anew: pinned ones first. */
function arrange(): void {
  const ids = [...pins, ...known.map((field) => field.id).filter((id) => !pins.includes(id))];
  for (const chart of shownCharts) if (!ids.includes(chart.field.id)) remove(chart);
  shownCharts = ids.map((id) => {
    const chart = shownCharts.find((one) => one.field.id === id) ?? added(id);
    const isPinned = pins.includes(id);
    chart.pinButton.textContent = isPinned ? "\u25c6" : "\u25c7";
    chart.pinButton.title = isPinned ? "Take off the top (p)" : "Pin to the top (p)";
    chart.pinButton.setAttribute("aria-pressed", String(isPinned));
    charts.append(chart.element);
    return chart;
  });
  // Who ran is below what was measured.
  if (timeline !== null) charts.append(timeline.element);
  focus(Math.min(focused, shownCharts.length - 1), false);
  layout();
}

function added(id: string): Chart {
  const chart = new Chart(fieldOf(id), view, () => flags);
  chart.pinButton.addEventListener("click", () => togglePin(id));
  watcher.observe(chart.element);
  return chart;
}

function remove(chart: Chart): void {
  watcher.unobserve(chart.element);
  visible.delete(chart);
  waiting.delete(chart);
  chart.destroy();
}

function togglePin(id: string): void {
  pins = pins.includes(id) ? pins.filter((pin) => pin !== id) : [id, ...pins];
  arrange();
  hold();
}

/** Shows a chart at the top. */
function chartIt(id: string): void {
  if (!pins.includes(id)) pins = [id, ...pins];
  arrange();
  focus(pins.indexOf(id), true);
  hold();
}

/** Chooses a chart, or of the numbers after those of the charts, a track of a CPU. */
function focus(number: number, isScrolled: boolean): void {
  focused = Math.max(0, number);
  const track = focused - shownCharts.length;
  shownCharts.forEach((chart, at) => chart.element.classList.toggle("focused", at === focused));
  timeline?.element.classList.toggle("focused", track >= 0);
  timeline?.choose(Math.max(-1, track));
  const element = track >= 0 ? timeline?.element : shownCharts[focused]?.element;
  if (isScrolled) element?.scrollIntoView({ block: "nearest" });
  if (track >= 0) drawOver();
}

function width(): number {
  return Math.max(1, charts.clientWidth - view.left);
}

function layout(): void {
  view.left = charts.clientWidth < 600 ? 52 : 68;
  for (const one of allShown()) one.resize();
  draw();
}

/** Writes the view into the address. */
function hold(): void {
  const { span, cursor, selection, isLive } = view;
  const process = timeline?.process ?? null;
  history.replaceState(null, "", heldText({ span, cursor, selection, pins, process, isLive }));
}

let holding = 0;
function holdSoon(): void {
  clearTimeout(holding);
  holding = window.setTimeout(hold, 150);
}

let drawing = 0;
function draw(): void {
  if (drawing === 0) {
    drawing = requestAnimationFrame(() => {
      drawing = 0;
      drawAxis(find("#axis canvas") as unknown as HTMLCanvasElement, view, flags);
      for (const one of visible) one.redraw();
      drawOver();
    });
  }
}

/** Places cursor and selection, and shows their times. */
function drawOver(): void {
  const place = (at: bigint) => view.left + xOf(at, view.span, width());
  const { cursor, selection, span } = view;
  cursorLine.hidden = cursor === null || cursor < span.from || cursor >= span.to;
  if (cursor !== null) cursorLine.style.transform = `translateX(${place(cursor)}px)`;
  selected.hidden = selection === null;
  if (selection !== null) {
    const left = Math.max(view.left, place(selection.from));
    const right = Math.min(view.left + width(), place(selection.to));
    selected.hidden = right <= left;
    selected.style.left = `${left}px`;
    selected.style.width = `${Math.max(2, right - left)}px`;
    selectedTools.classList.toggle("at-left", left > charts.clientWidth - 260);
  }
  const flag = cursor === null ? undefined : flags.find((flag) => {
    return Math.abs(xOf(BigInt(flag.wall_ns), span, width()) - xOf(cursor, span, width())) < SNAP;
  });
  const length = lengthText(span.to - span.from);
  cursorText.textContent =
    cursor === null ? `${length} shown` : `${exactText(cursor)} ${zoneText(cursor)}${flag ? `  \u2691 ${shown(flag.text)}` : ""}  (${length} shown)`;
  for (const one of visible) one.showValues();
}

let settling = 0;
/** The page's time of the last move, in milliseconds. */
let moved = -Infinity;
/** Moves the view. Charts are read at once, and after further moves once the view has settled. */
function move(span: Span, isFrozen = true): void {
  if (isFrozen && view.isLive) freeze();
  view.span = span;
  draw();
  holdSoon();
  const before = moved;
  moved = performance.now();
  clearTimeout(settling);
  if (moved - before > SETTLE_MS) {
    readAll();
  } else {
    settling = window.setTimeout(readAll, SETTLE_MS);
    showReading();
  }
}

function readAll(): void {
  settling = 0;
  for (const one of allShown()) {
    one.request?.abort();
    one.request = null;
  }
  for (const one of visible) read(one);
  showReading();
}

function read(one: Shown): void {
  waiting.add(one);
  readNext();
}

function readNext(): void {
  for (const one of allShown()) {
    if (inFlight >= IN_FLIGHT_MAX) break;
    if (!waiting.delete(one) || !visible.has(one)) continue;
    inFlight += 1;
    void request(one).finally(() => {
      inFlight -= 1;
      readNext();
    });
  }
  showReading();
}

/** Says how many charts wait or are read, or will be once the view has settled: tests wait for none. */
function showReading(): void {
  const coming = settling === 0 ? 0 : 1;
  document.documentElement.dataset["reading"] = String(waiting.size + inFlight + coming);
}

/** Returns the time to read: the view, and where samples are few, the ones around it. */
function readSpan(source: string | null): Span {
  const { from, to } = view.span;
  const period = BigInt((source === null ? null : periods.get(source)) ?? 0);
  const length = to - from;
  const around = length < 100n * period ? 5n * period + length / 2n : length < 100n * MS ? length / 2n : 0n;
  return { from: from - around, to: to + around };
}

async function request(one: Shown): Promise<void> {
  const controller = new AbortController();
  one.request?.abort();
  one.request = controller;
  const span = readSpan(one.source);
  const part = Number(span.to - span.from) / Number(view.span.to - view.span.from);
  const px = Math.min(PIXELS_MAX, Math.max(64, Math.round(width() * (devicePixelRatio || 1) * Math.min(part, 3))));
  try {
    const isComplete = await one.load({ api, span, px }, controller.signal);
    if (controller.signal.aborted) return;
    one.error = "";
    if (!isComplete) read(one);
  } catch (error) {
    if (controller.signal.aborted) return;
    one.error = shown((error as Error).message);
  } finally {
    if (one.request === controller) one.request = null;
  }
  one.redraw();
  document.documentElement.dataset["drawn"] = String(performance.now());
}

// Live.

function freeze(): void {
  view.isLive = false;
  liveEvents?.abort();
  liveEvents = null;
  showState();
}

function showState(text = ""): void {
  const state = view.isLive ? "live" : recording.is_growing ? "frozen" : "recorded";
  stateText.textContent = text === "" ? state : `${state}: ${text}`;
  stateText.dataset["state"] = state;
  find("#live").textContent = view.isLive ? "Freeze" : "Live";
}

async function goLive(): Promise<void> {
  if (!recording.is_growing) {
    move({ from: whole.to - (view.span.to - view.span.from), to: whole.to });
    return;
  }
  if (view.isLive) return;
  view.isLive = true;
  view.cursor = null;
  showState();
  const controller = new AbortController();
  liveEvents = controller;
  const fresh = await api.get<Recording>("sources").catch(() => recording);
  const until = BigInt(fresh.to_ns);
  move({ from: until - LIVE_LENGTH, to: until }, false);
  const reread = setInterval(() => {
    const isSent = (one: Shown) => one instanceof Chart && known.includes(one.field);
    for (const one of visible) if (!isSent(one) && one.request === null) read(one);
  }, REREAD_MS);
  try {
    await api.live(receive, controller.signal);
    if (!controller.signal.aborted) freeze();
  } catch (error) {
    if (!controller.signal.aborted) {
      freeze();
      showState(shown((error as Error).message));
    }
  } finally {
    clearInterval(reread);
  }
}

function receive(event: LiveEvent): void {
  if (!view.isLive) return;
  const until = BigInt(event.until_ns);
  whole = { from: whole.from, to: until > whole.to ? until : whole.to };
  view.span = { from: until - LIVE_LENGTH, to: until };
  for (const { id, series } of event.charts) {
    const chart = shownCharts.find((one) => one.field.id === id);
    chart?.add(series.map(seriesOf), view.span.from - LIVE_LENGTH);
  }
  document.documentElement.dataset["live"] = event.until_ns;
  draw();
}

function seriesOf(sent: LiveEvent["charts"][number]["series"][number]): Series {
  const series = emptySeries(sent.label, sent.path, sent.unit);
  for (const [first, last, min, max, firstValue, lastValue, count] of sent.rows) {
    series.first.push(BigInt(first));
    series.last.push(BigInt(last));
    series.min.push(min ?? NaN);
    series.max.push(max ?? NaN);
    series.firstValue.push(firstValue ?? NaN);
    series.lastValue.push(lastValue ?? NaN);
    series.count.push(count);
  }
  return series;
}

// What the buttons and keys do.

function select(selection: Span | null): void {
  view.selection = selection;
  drawOver();
  holdSoon();
}

async function ask<T>(title: string, path: string, span: Span, show: (found: T) => void): Promise<void> {
  panel.message(title, "reading ...");
  layout();
  try {
    show(await api.get<T>(path, { from: String(span.from), to: String(span.to) }));
  } catch (error) {
    panel.message(title, shown((error as Error).message));
  }
}

/** Puts the cursor to a time, and the view around it if it is elsewhere. */
function toTime(at: bigint): void {
  view.cursor = at;
  if (at < view.span.from || at >= view.span.to) {
    const half = (view.span.to - view.span.from) / 2n;
    move(bounded({ from: at - half, to: at + half }, whole));
  }
  drawOver();
  holdSoon();
}

function chosen(departure: Departure): void {
  toTime(BigInt(departure.wall_ns));
  // A text, whose share of time departs, has no chart: the cursor is where it differs.
  if (departure.state === undefined) chartIt(departure.path);
}

function explain(): void {
  if (view.isLive) freeze();
  const span = view.selection ?? view.span;
  void ask<Explanation>("What changed here", "explain", span, (found) => {
    panel.explanation(found, chosen, { toProcess: timeline === null ? null : standOut, toTime });
  });
}

function spikes(): void {
  if (view.isLive) freeze();
  void ask<Departure[]>("Spikes", "spikes", view.span, (found) => panel.spikes(found, (spike) => {
    const at = BigInt(spike.wall_ns);
    if (view.span.to - view.span.from > 20n * S) move(bounded({ from: at - 10n * S, to: at + 10n * S }, whole));
    chosen(spike);
  }));
}

function search(): void {
  panel.search([...known, ...fields], (field) => chartIt(field.id));
  layout();
}

function writeMark(): void {
  if (!recording.can_mark) return;
  panel.order("Write a mark", "deploy 42 begins", async (text) => {
    const said = await api.mark(text);
    setTimeout(() => void readFlags(), 1000);
    return said;
  });
  layout();
}

/** Keeps what the ring of the recorder has from the begin of what is selected or shown. */
function keepSnapshot(): void {
  if (!recording.can_mark) return;
  const { from } = view.selection ?? view.span;
  panel.order("Keep a snapshot", "the stall of 14:02", async (reason) => {
    const past = BigInt(Date.now()) * MS - from;
    const seconds = Math.min(SNAPSHOT_SECONDS_MAX, Math.max(1, Number((past + S - 1n) / S)));
    const said = await api.snapshot(seconds, reason);
    setTimeout(() => void readFlags(), 1000);
    return said;
  });
  layout();
}

/** Reads marks and snapshots; without them the page is as good. */
async function readFlags(): Promise<void> {
  const both = [api.get<Flag[]>("marks"), api.get<Flag[]>("snapshots")];
  const [marks, snapshots] = await Promise.all(both.map((list) => list.catch(() => null)));
  flags = marks && snapshots ? [...marks, ...snapshots] : flags;
  draw();
}

function zoomToSelection(): void {
  if (view.selection === null) return;
  const { from, to } = view.selection;
  const margin = (to - from) / 20n;
  select(null);
  move(bounded({ from: from - margin, to: to + margin + 1n }, whole));
}

function zoomBy(factor: number, around: bigint | null): void {
  const { from, to } = view.span;
  const middle = around !== null && around >= from && around < to ? around : (from + to) / 2n;
  move(zoomed(view.span, factor, middle, whole));
}

function panBy(part: number): void {
  const { from, to } = view.span;
  const by = BigInt(Math.round(Number(to - from) * part));
  move(bounded({ from: from + by, to: to + by }, whole));
}

/** Lets a process stand out on the CPUs, or all of them alike. */
function highlight(process: number | null): void {
  if (timeline === null || timeline.process === process) return;
  timeline.process = process;
  draw();
  holdSoon();
  // Of a pixel with many threads the server knows the share of one process.
  read(timeline);
}

function standOut(process: number): void {
  focus(shownCharts.length, true);
  highlight(process);
}

function toggleProcess(): void {
  const process = view.cursor === null ? null : (timeline?.processAt(view.cursor) ?? null);
  highlight(process === timeline?.process ? null : process);
}

function step(isForward: boolean): void {
  const series = shownCharts[focused]?.envelope?.series ?? [];
  const at = view.cursor ?? (view.span.from + view.span.to) / 2n;
  const next = focused < shownCharts.length ? neighbor(series, at, isForward) : (timeline?.neighbor(at, isForward) ?? null);
  if (next === null) return;
  if (view.isLive) freeze();
  toTime(next);
}

function edge(isStart: boolean): void {
  if (view.cursor === null) return;
  const other = view.selection ?? { from: view.cursor, to: view.cursor + 1n };
  const span = isStart ? { from: view.cursor, to: other.to } : { from: other.from, to: view.cursor + 1n };
  select(span.from < span.to ? span : { from: view.cursor, to: view.cursor + 1n });
}

const keys: Record<string, () => unknown> = {
  ArrowLeft: () => panBy(-0.1),
  ArrowRight: () => panBy(0.1),
  ArrowUp: () => focus(Math.max(0, focused - 1), true),
  ArrowDown: () => focus(Math.min(shownCharts.length + (timeline?.tracks ?? 0) - 1, focused + 1), true),
  "+": () => zoomBy(0.5, view.cursor),
  "=": () => zoomBy(0.5, view.cursor),
  "-": () => zoomBy(2, view.cursor),
  ",": () => step(false),
  ".": () => step(true),
  "[": () => edge(true),
  "]": () => edge(false),
  z: zoomToSelection,
  e: explain,
  s: spikes,
  "/": search,
  c: () => timeline !== null && focus(shownCharts.length, true),
  h: toggleProcess,
  p: () => focused < shownCharts.length && togglePin(shownCharts[focused]?.field.id ?? ""),
  m: writeMark,
  k: keepSnapshot,
  "0": () => move(whole),
  Home: () => move({ from: whole.from, to: whole.from + (view.span.to - view.span.from) }),
  End: () => void goLive(),
  " ": () => (view.isLive ? (freeze(), readAll(), hold()) : void goLive()),
  "?": () => {
    panel.help(recording.version);
    layout();
  },
  Escape: () => {
    if (panel.isOpen) panel.close();
    else if (view.selection !== null) select(null);
    else if (timeline !== null && timeline.process !== null) highlight(null);
    else {
      view.cursor = null;
      drawOver();
    }
  },
};

function listen(): void {
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target instanceof HTMLInputElement;
    const isPressed = event.target instanceof HTMLButtonElement && (event.key === " " || event.key === "Enter");
    if (event.ctrlKey || event.metaKey || event.altKey || isPressed || (isTyping && event.key !== "Escape")) return;
    if (panel.hasFocus && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      panel.step(event.key === "ArrowDown");
      return;
    }
    const act = keys[event.key];
    if (act === undefined) return;
    event.preventDefault();
    act();
  });
  const clicks: [string, () => void][] = [
    ["search", search],
    ["spikes", spikes],
    ["explain", explain],
    ["mark", writeMark],
    ["snapshot", keepSnapshot],
    ["whole", () => void keys["0"]!()],
    ["live", () => void keys[" "]!()],
    ["help", () => void keys["?"]!()],
  ];
  for (const [id, act] of clicks) find(`#${id}`).addEventListener("click", act);
  selectedTools.append(
    button("What changed here", "e", explain),
    button("Zoom", "z", zoomToSelection),
    button("\u00d7", "Clear (Esc)", () => select(null)),
  );
  const part = (event: MouseEvent) => (event.clientX - charts.getBoundingClientRect().left - view.left) / width();
  let began: { at: bigint; x: number } | null = null;
  charts.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || (event.target as HTMLElement).closest("button") !== null || part(event) < 0) return;
    if (view.isLive) freeze();
    began = { at: timeAt(view.span, part(event)), x: event.clientX };
    const chart = shownCharts.findIndex((one) => one.element.contains(event.target as Node));
    if (chart >= 0) focus(chart, false);
  });
  document.addEventListener("pointermove", (event) => {
    const isOver = charts.contains(event.target as Node) && part(event) >= 0;
    if (began === null && !isOver) return;
    const at = timeAt(view.span, part(event));
    view.cursor = isOver ? snapped(event, at) : view.cursor;
    timeline?.point(timeline.element.contains(event.target as Node) ? event : null);
    if (began !== null && Math.abs(event.clientX - began.x) > 4) {
      view.selection = at < began.at ? { from: at, to: began.at } : { from: began.at, to: at + 1n };
    }
    drawOver();
    holdSoon();
  });
  document.addEventListener("pointerup", (event) => {
    const isClick = began !== null && Math.abs(event.clientX - began.x) <= 4;
    if (isClick && timeline?.element.contains(event.target as Node)) toggleProcess();
    began = null;
  });
  document.addEventListener("pointercancel", () => (began = null));
  document.addEventListener(
    "wheel",
    (event) => {
      const isOver = charts.contains(event.target as Node) || axis.contains(event.target as Node);
      // The page itself scrolls with the wheel beside the charts, and with Alt.
      if (!isOver || event.altKey || part(event) < 0) return;
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 30 : 1;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        panBy(((event.deltaX || event.deltaY) * lines) / 1000);
      } else {
        zoomBy(Math.exp(event.deltaY * lines * 0.004), timeAt(view.span, part(event)));
      }
    },
    { passive: false },
  );
  let dragged: { x: number; span: Span } | null = null;
  axis.addEventListener("pointerdown", (event) => {
    dragged = { x: event.clientX, span: view.span };
    axis.setPointerCapture(event.pointerId);
  });
  axis.addEventListener("pointermove", (event) => {
    if (dragged === null) return;
    const { from, to } = dragged.span;
    const by = BigInt(Math.round((Number(to - from) * (dragged.x - event.clientX)) / width()));
    move(bounded({ from: from + by, to: to + by }, whole));
  });
  axis.addEventListener("pointerup", () => (dragged = null));
  new ResizeObserver(() => layout()).observe(charts);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
  window.addEventListener("hashchange", () => void restore());
}

/** Returns the time of the sample under the pointer, if there is one. */
function snapped(event: PointerEvent, at: bigint): bigint {
  const element = (event.target as HTMLElement).closest<HTMLElement>(".chart");
  const chart = shownCharts.find((one) => one.element === element);
  for (const series of chart?.envelope?.series ?? []) {
    const before = rowAt(series, at);
    for (const row of [before, before + 1]) {
      const first = series.first[row];
      if (first === undefined || series.count[row] !== 1 || series.last[row] !== first) continue;
      const distance = Math.abs(xOf(first, view.span, width()) - xOf(at, view.span, width()));
      if (distance <= SNAP) return first;
    }
  }
  return at;
}

/** Takes the view from the address. */
async function restore(): Promise<void> {
  const held = parseHeld(location.hash);
  pins = held.pins;
  if (timeline !== null) timeline.process = held.process;
  view.cursor = held.cursor ?? held.at;
  view.selection = held.selection;
  const around = held.at;
  const near = around === null ? null : bounded({ from: around - 15n * S, to: around + 15n * S }, whole);
  arrange();
  if (held.isLive) return goLive();
  move(held.span ?? near ?? whole);
}

async function start(): Promise<void> {
  // Neither is a part of a view that is passed on.
  if (asked.token !== null || asked.ticket !== null) {
    const rest = location.hash.replace(/(token|ticket)=[^&]*&?/g, "");
    history.replaceState(null, "", rest === "#" ? location.pathname : rest);
  }
  if (asked.ticket !== null) {
    const token = await new Api(asked.ticket).tokenOfTicket().catch(() => null);
    asked.ticket = null;
    if (token !== null) {
      sessionStorage.setItem("token", token);
      api = new Api(token);
    }
  }
  try {
    const [found, offered] = await Promise.all([
      api.get<Recording & { sources: { name: string; period_ns: number }[] }>("sources"),
      api.get<{ charts: Field[]; fields: Field[] }>("fields"),
    ]);
    recording = found;
    known = offered.charts;
    fields = offered.fields;
    periods = new Map(found.sources.map(({ name, period_ns }) => [name, period_ns]));
  } catch (error) {
    const isToken = error instanceof Refused && error.status === 401;
    if (!isToken) return panel.message("No recording", shown((error as Error).message));
    panel.token(
      (token) => {
        sessionStorage.setItem("token", token);
        api = new Api(token);
        panel.close();
        void start();
      },
      stored === null && asked.token === null ? "This page needs a token." : "This token is not the server's.",
    );
    return;
  }
  whole = { from: BigInt(recording.from_ns), to: BigInt(recording.to_ns) + 1n };
  find("#host").textContent = shown(recording.host) || "flatcap";
  document.title = `${shown(recording.host)} - flatcap`;
  find("#live").hidden = !recording.is_growing;
  for (const id of ["mark", "snapshot"]) find(`#${id}`).hidden = !recording.can_mark;
  if (recording.has_tasks) {
    timeline = new TimelineChart(view);
    watcher.observe(timeline.element);
  }
  showState();
  listen();
  void readFlags();
  const hasView = /(^|[#&])(from|at|live)=/.test(location.hash);
  if (!hasView && recording.is_growing) {
    arrange();
    return goLive();
  }
  return restore();
}

void start();
