// Starts Debian's Chromium without a display, and watches what its pages ask for.

import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

// The page's own packages, so that tests need no second set.
const require = createRequire(new URL("../../web/package.json", import.meta.url));
const { chromium } = require("playwright-core");

const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
/** Longest wait for a condition: a watchdog, and no limit on speed. */
export const WATCHDOG_MS = 120_000;

/**
 * Calls `test` with a function that opens a page, and fails on errors of any page, but for expected
 * lines of its console.
 */
export async function withBrowser(program, test, expected = []) {
  const folder = mkdtempSync(join(tmpdir(), "flatcap-browser-"));
  const context = await chromium.launchPersistentContext(folder, {
    executablePath: program,
    args: FLAGS,
    viewport: { width: 1280, height: 800 },
  });
  context.setDefaultTimeout(WATCHDOG_MS);
  const problems = [];
  try {
    await test(async (url, { width, height, scheme } = {}) => {
      const page = await context.newPage();
      page.on("pageerror", (error) => problems.push(`error: ${error.message}`));
      page.on("console", (message) => {
        const isExpected = expected.some((start) => message.text().startsWith(start));
        if (message.type() === "error" && !isExpected) problems.push(`console: ${message.text()}`);
      });
      page.on("request", (request) => {
        if (new URL(request.url()).host !== new URL(url).host) problems.push(`another host: ${request.url()}`);
      });
      if (width) await page.setViewportSize({ width, height });
      await page.emulateMedia({ colorScheme: scheme ?? "light", timezone: "UTC" });
      await page.goto(url);
      return page;
    });
  } finally {
    await context.close();
    rmSync(folder, { recursive: true, force: true });
  }
  if (problems.length > 0) throw new Error(problems.join("\n"));
}

/** Waits until no chart reads any more. */
export async function settled(page) {
  const isIdle = () => {
    const { drawn, reading } = document.documentElement.dataset;
    const notes = [...document.querySelectorAll(".chart .note")].map((note) => note.textContent);
    return drawn && (reading ?? "0") === "0" && notes.every((note) => !note.includes("reading"));
  };
  await page.waitForFunction(isIdle);
  // A chart that came into view is read in one of the next frames.
  await page.waitForTimeout(150);
  await page.waitForFunction(isIdle);
}
