// Times are nanoseconds since 1970 as BigInt: a number of JavaScript has 53 bits, too few since
// the 104th day of 1970. Numbers are used for lengths of time relative to a view alone.

export const US = 1000n;
export const MS = 1000000n;
export const S = 1000000000n;

/** A view: its first time, and the time after its last one. */
export interface Span {
  from: bigint;
  to: bigint;
}

const STEPS: bigint[] = (() => {
  const steps: bigint[] = [];
  for (let power = 1n; power <= 100n * MS; power *= 10n) steps.push(power, 2n * power, 5n * power);
  const longer = [1n, 2n, 5n, 10n, 15n, 30n, 60n, 120n, 300n, 600n, 900n, 1800n, 3600n, 7200n, 10800n];
  const days = [21600n, 43200n, 86400n, 172800n, 604800n, 2592000n, 7776000n, 31536000n];
  return steps.concat(longer.map((s) => s * S), days.map((s) => s * S));
})();

/** Returns the shortest step of which at most `count` fit the view. */
export function tickStep(span: Span, count: number): bigint {
  const least = (span.to - span.from) / BigInt(Math.max(1, Math.floor(count)));
  return STEPS.find((step) => step >= least) ?? STEPS[STEPS.length - 1]!;
}

/** Returns the offset of local time, in nanoseconds. */
function zoneOffset(ns: bigint): bigint {
  return -BigInt(new Date(Number(ns / MS)).getTimezoneOffset()) * 60n * S;
}

/** Returns the ticks of a view: round times of this zone. */
export function ticks(span: Span, count: number): { at: bigint; step: bigint }[] {
  const step = tickStep(span, count);
  const offset = zoneOffset(span.from);
  const local = span.from + offset;
  let at = local - (((local % step) + step) % step) - offset;
  const found = [];
  for (; at < span.to; at += step) if (at >= span.from) found.push({ at, step });
  return found;
}

const two = (value: number) => String(value).padStart(2, "0");

/** Splits a time into a date and nanoseconds within its second. */
function parts(ns: bigint): { date: Date; rest: bigint } {
  const rest = ((ns % S) + S) % S;
  return { date: new Date(Number((ns - rest) / MS)), rest };
}

export function dateText(ns: bigint): string {
  const { date } = parts(ns);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** Returns a time of day, with as many decimals as a step needs. */
export function timeText(ns: bigint, step: bigint): string {
  const { date, rest } = parts(ns);
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}`;
  if (step >= 60n * S) return clock;
  const seconds = `${clock}:${two(date.getSeconds())}`;
  let decimals = 0;
  for (let unit = S; unit > step; unit /= 10n) decimals += 1;
  if (decimals === 0) return seconds;
  return `${seconds}.${String(rest).padStart(9, "0").slice(0, decimals)}`;
}

/** Returns the label of a tick: what changes from tick to tick. */
export function tickText(ns: bigint, step: bigint): string {
  if (step >= 86400n * S) return dateText(ns).slice(5);
  const text = timeText(ns, step);
  if (step >= 100n * MS) return text;
  // Within a second the clock is at the left end of the axis.
  return text.slice(text.indexOf("."));
}

export function exactText(ns: bigint): string {
  return `${dateText(ns)} ${timeText(ns, 1n)}`;
}

/** Returns the offset of the zone in which times are shown, as +02:00. */
export function zoneText(ns: bigint): string {
  const minutes = Number(zoneOffset(ns) / (60n * S));
  const size = Math.abs(minutes);
  return `${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

/** Returns a length of time with three digits. */
export function lengthText(ns: bigint): string {
  const units: [bigint, string][] = [[86400n * S, "d"], [3600n * S, "h"], [60n * S, "min"], [S, "s"], [MS, "ms"], [US, "us"]];
  for (const [unit, name] of units) {
    if (ns >= unit) return `${significant(Number((ns * 1000n) / unit) / 1000)} ${name}`;
  }
  return `${ns} ns`;
}

/** Formats a number with three significant digits. */
export function significant(value: number): string {
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  if (size >= 9 || size < -4) return value.toPrecision(3);
  return value.toFixed(Math.min(6, Math.max(0, 2 - size)));
}
