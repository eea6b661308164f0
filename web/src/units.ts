// Values for people, and names from recordings made harmless.

import { significant } from "./times";

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const LARGE = ["", "k", "M", "G", "T"];

function scaled(value: number, base: number, names: string[]): string {
  let at = 0;
  while (Math.abs(value) >= base && at + 1 < names.length) {
    value /= base;
    at += 1;
  }
  return `${significant(value)} ${names[at]}`;
}

/** Formats a value with its unit, as `flatcap explain` does. */
export function valueText(value: number, unit: string): string {
  if (!Number.isFinite(value)) return "-";
  switch (unit) {
    case "B":
    case "bytes":
      return scaled(value, 1024, BYTES);
    case "B/s":
    case "bytes/s":
      return `${scaled(value, 1024, BYTES)}/s`;
    case "s": {
      const size = Math.abs(value);
      if (size >= 1 || size === 0) return `${significant(value)} s`;
      if (size >= 1e-3) return `${significant(value * 1e3)} ms`;
      return size >= 1e-6 ? `${significant(value * 1e6)} us` : `${significant(value * 1e9)} ns`;
    }
    case "%":
    case "percent":
      return `${significant(value)} %`;
    case "1/s":
    case "/s":
      return `${scaled(value, 1000, LARGE)}/s`.replace("  ", " ");
    case "":
    case "none":
      return scaled(value, 1000, LARGE).trim();
    default:
      return `${significant(value)} ${unit}`;
  }
}

/** Formats a round value, without zeros at its end: for scales. */
export function shortText(value: number, unit: string): string {
  return valueText(value, unit).replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");
}

/** Returns a value in full, for a copy. */
export function fullText(value: number, unit: string): string {
  return `${value} ${unit}`.trim();
}

// Control characters, and those that change the direction of writing.
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Returns a name from a recording as it can be shown. */
export function shown(name: string): string {
  return name.replace(UNSAFE, (one) => `\\u{${one.codePointAt(0)!.toString(16)}}`);
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}
