// The axis of time above the charts, with marks and snapshots as flags.

import type { Flag } from "./api";
import { color } from "./dom";
import { dateText, tickText, timeText } from "./times";
import { ticks, xOf, type View } from "./view";

const HEIGHT = 40;

/** Draws the axis. */
export function drawAxis(canvas: HTMLCanvasElement, view: View, flags: Flag[]): void {
  const ratio = devicePixelRatio || 1;
  const width = canvas.parentElement!.clientWidth;
  canvas.width = Math.round(width * ratio);
  canvas.height = HEIGHT * ratio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${HEIGHT}px`;
  const ctx = canvas.getContext("2d")!;
  ctx.scale(ratio, ratio);
  ctx.font = "11px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  const place = (at: bigint) => view.left + xOf(at, view.span, width - view.left);
  const shownTicks = ticks(view.span, (width - view.left) / 110);
  const step = shownTicks[0]?.step ?? 1n;
  ctx.fillStyle = color("quiet");
  ctx.strokeStyle = color("grid");
  let free = view.left;
  for (const { at } of shownTicks) {
    const x = place(at);
    ctx.beginPath();
    ctx.moveTo(x, 30);
    ctx.lineTo(x, HEIGHT);
    ctx.stroke();
    const text = tickText(at, step);
    const half = ctx.measureText(text).width / 2;
    if (x - half >= free && x + half <= width) {
      ctx.fillText(text, x - half, 23);
      free = x + half + 8;
    }
  }
  // What the labels leave out: the date, and below a second the clock.
  ctx.fillStyle = color("text");
  const isFine = step < 100000000n;
  const start = isFine ? `${dateText(view.span.from)} ${timeText(view.span.from, 1000000000n)}` : dateText(view.span.from);
  ctx.fillText(start, view.left, 8);
  for (const flag of flags) {
    ctx.fillStyle = color(flag.kept === undefined ? "mark" : "snapshot");
    if (flag.kept !== undefined) {
      const left = Math.max(view.left, place(BigInt(flag.kept.from_ns)));
      const right = Math.min(width, place(BigInt(flag.kept.to_ns)));
      if (right >= left) ctx.fillRect(left, HEIGHT - 3, Math.max(2, right - left), 3);
    }
    const x = place(BigInt(flag.wall_ns));
    if (x < view.left || x > width) continue;
    ctx.beginPath();
    ctx.moveTo(x, 28);
    ctx.lineTo(x + 9, 32);
    ctx.lineTo(x, 36);
    ctx.fill();
    ctx.fillRect(x - 0.5, 28, 1, 12);
  }
}
