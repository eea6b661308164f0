// Looks at a recorder that runs: CHROMIUM ADDRESS-WITH-TOKEN.

import assert from "node:assert/strict";
import { withBrowser } from "./browser.mjs";

const [program, address] = process.argv.slice(2);

await withBrowser(program, async (open) => {
  const page = await open(address);
  const state = (name) => page.locator(`#state[data-state="${name}"]`).waitFor();
  const moved = async () => {
    const before = await page.evaluate(() => document.documentElement.dataset.live ?? "0");
    await page.waitForFunction((before) => BigInt(document.documentElement.dataset.live ?? 0) > BigInt(before), before);
  };
  await state("live");
  await moved();
  await moved();
  // New values are drawn: the chart says what it is now.
  await page.locator('.chart[data-id="cpu"] .value').first().waitFor();

  // Space freezes, End follows again; so does a zoom, which stays where it is.
  await page.keyboard.press(" ");
  await state("frozen");
  await page.waitForTimeout(250);
  assert.ok(!page.url().includes("live=1"), page.url());
  await page.keyboard.press("End");
  await state("live");
  await moved();
  await page.waitForTimeout(250);
  assert.ok(page.url().includes("live=1"), page.url());
  await page.keyboard.press("-");
  await state("frozen");
  await page.keyboard.press("End");
  await moved();

  // A mark goes into the recording.
  await page.keyboard.press("m");
  await page.keyboard.type("deploy 42 begins");
  await page.keyboard.press("Enter");
  await page.locator("#panel [role=status]", { hasText: "marked" }).waitFor();

  // A snapshot keeps what is shown, for a reason.
  await page.keyboard.press("Escape");
  await page.keyboard.press("k");
  await page.keyboard.type("the stall");
  await page.keyboard.press("Enter");
  await page.locator("#panel [role=status]", { hasText: "snapshot" }).waitFor();
});
