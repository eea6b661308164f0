// Looks at the timeline of the CPUs: CHROMIUM ADDRESS TOKEN BLIP_NS BLIP_LENGTH GAP_NS.

import assert from "node:assert/strict";
import { settled, withBrowser } from "./browser.mjs";

const [program, address, token, blipText, lengthText, gapText] = process.argv.slice(2);
const blip = BigInt(blipText);
const length = BigInt(lengthText);
const TIMELINE = '.timeline[data-id="CPUs"]';

/** The view in the address of a page. */
async function held(page) {
  await page.waitForTimeout(250);
  return new URLSearchParams(new URL(page.url()).hash.slice(1));
}

/** Where a time is on the track of a CPU, in pixels of the page. */
async function placeOf(page, at, cpu) {
  const view = await held(page);
  const [from, to] = [BigInt(view.get("from")), BigInt(view.get("to"))];
  const canvas = await page.locator(`${TIMELINE} canvas`).boundingBox();
  const left = canvas.width < 600 ? 52 : 68;
  const x = canvas.x + left + (Number(at - from) / Number(to - from)) * (canvas.width - left);
  return { x, y: canvas.y + (cpu + 0.5) * 20 };
}

/** Returns how many pixels of a color of the palette are near a place. */
async function colored(page, { x, y }) {
  return page.evaluate(([selector, x, y]) => {
    const canvas = document.querySelector(`${selector} canvas`);
    const box = canvas.getBoundingClientRect();
    const ratio = canvas.width / box.width;
    const left = Math.round((x - box.left) * ratio) - 3;
    const top = Math.round((y - box.top - 9) * ratio);
    const pixels = canvas.getContext("2d").getImageData(left, top, 7, 18 * ratio).data;
    let count = 0;
    // Of what is drawn, slices alone are far from gray.
    for (let at = 0; at < pixels.length; at += 4) {
      const [red, green, blue] = pixels.slice(at, at + 3);
      if (pixels[at + 3] > 100 && Math.max(red, green, blue) - Math.min(red, green, blue) > 50) count += 1;
    }
    return count;
  }, [TIMELINE, x, y]);
}

const detail = (page) => page.locator(`${TIMELINE} .detail`).textContent();

await withBrowser(program, async (open) => {
  const page = await open(`${address}#token=${token}`);
  await settled(page);
  // From a chart, c leads to the CPUs.
  await page.keyboard.press("c");
  await settled(page);
  assert.equal(await page.locator(`${TIMELINE} h2`).textContent(), "CPUs 0 to 3");
  assert.equal(await page.locator(TIMELINE).evaluate((timeline) => timeline.nextElementSibling), null, "below the charts");

  // Time that is not recorded says so, and is not idle.
  const gap = await placeOf(page, BigInt(gapText), 2);
  await page.mouse.move(gap.x, gap.y);
  assert.match(await detail(page), /^CPU 2 +not recorded$/);
  assert.equal(await colored(page, gap), 0);

  // One slice of 3 us is drawn in two seconds, and at every zoom down to ten times its length. Each
  // turn of the wheel asks once; what was not read in one answer is asked for with the same words.
  const asked = new Set();
  page.on("request", (request) => request.url().includes("/tasks?") && asked.add(request.url()));
  for (let turn = 0; turn <= 5; turn += 1) {
    const place = await placeOf(page, blip + length / 2n, 2);
    assert.ok((await colored(page, place)) > 0, `the slice is drawn after ${turn} turns`);
    const beside = await placeOf(page, blip - length, 2);
    if (turn === 5) assert.equal(await colored(page, { ...beside, x: beside.x - 8 }), 0, "and nothing beside it");
    await page.mouse.move(place.x, place.y);
    assert.match(await detail(page), /blip \[777\]/, `after ${turn} turns`);
    if (turn < 5) {
      asked.clear();
      await page.mouse.wheel(0, -560);
      await settled(page);
      assert.equal(asked.size, 1, "a change of the view asks once");
    }
  }
  const view = await held(page);
  assert.ok(BigInt(view.get("to")) - BigInt(view.get("from")) < 60000n, String(view));
  const text = await detail(page);
  assert.match(text, /^CPU 2 +blip \[777\] +\d\d:\d\d:\d\d\.000123000 for 3\.00 us, then waited/, text);
  assert.match(text, /waited 20\.0 us for the CPU.*woken by kworker\/0:1 \[33\]/, text);
  // Moving the pointer asks nothing.
  asked.clear();
  const hostile = await placeOf(page, blip, 3);
  await page.mouse.move(hostile.x, hostile.y);
  await settled(page);
  assert.equal(asked.size, 0);

  // A click lets the process stand out; the address has it, and Esc ends it.
  const other = await placeOf(page, blip + length / 2n, 1);
  const bright = await colored(page, other);
  const place = await placeOf(page, blip + length / 2n, 2);
  await page.mouse.move(place.x, place.y);
  await page.mouse.down();
  await page.mouse.up();
  await settled(page);
  assert.equal((await held(page)).get("process"), "777");
  assert.match(await page.locator(`${TIMELINE} .note`).textContent(), /process 777/);
  assert.ok((await colored(page, other)) < bright && (await colored(page, place)) > 0, "others are dimmed");
  await page.keyboard.press("0");
  await settled(page);
  const far = await placeOf(page, blip, 2);
  assert.ok((await colored(page, far)) > 0, "it stands out in the whole recording, too");
  const before = await placeOf(page, blip - 500000000n, 2);
  await page.mouse.move(before.x, before.y);
  await page.mouse.move(5, 300);
  await page.keyboard.press("Escape");
  await settled(page);
  assert.equal((await held(page)).get("process"), null);

  // Keys alone: down to the track, and to the slices on it.
  await page.keyboard.press("c");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press(".");
  assert.match(await detail(page), /^CPU 2 +blip \[777\]/);
  await page.keyboard.press("h");
  await settled(page);
  assert.equal((await held(page)).get("process"), "777");
  await page.keyboard.press("h");

  // A selection is the same on charts and CPUs; the address restores the process.
  const again = await open(`${address}#token=${token}&from=${blip - 400000n}&to=${blip + 400000n}&process=666`);
  await settled(again);
  await again.keyboard.press("c");
  await settled(again);
  assert.match(await again.locator(`${TIMELINE} .note`).textContent(), /process 666/);
  // From slice to slice; a name is text.
  for (let track = 0; track < 3; track += 1) await again.keyboard.press("ArrowDown");
  const names = [];
  for (const key of [".", ".", ","]) {
    await again.keyboard.press(key);
    names.push(await detail(again));
  }
  assert.ok(names.some((name) => name.includes("\\u{1b}[31m<b>\\u{202e}\\u{7} [666]")), String(names));
  assert.ok(names.some((name) => name.includes("kworker/0:1 [33]")), String(names));
  assert.notEqual(names[0], names[1]);
  assert.equal(names[0], names[2]);
  assert.equal(await again.locator(`${TIMELINE} .detail *`).count(), 1);

  // What changed here: who ran and who waited, and a row leads to the CPUs.
  await again.keyboard.press("e");
  await again.locator("#panel h3", { hasText: "Waited for a CPU" }).waitFor();
  await settled(again);
  await again.locator("#panel button", { hasText: "kworker/0:1 [33]" }).first().click();
  await settled(again);
  assert.equal((await held(again)).get("process"), "33");
  assert.equal(await again.locator("#panel b b").count(), 0);

  // 400 pixels, in the dark: nothing is cut off.
  const narrow = await open(`${address}#token=${token}`, { width: 400, height: 800, scheme: "dark" });
  await settled(narrow);
  await narrow.keyboard.press("c");
  await settled(narrow);
  const spot = await placeOf(narrow, blip, 1);
  await narrow.mouse.move(spot.x, spot.y);
  assert.ok((await narrow.evaluate(() => document.documentElement.scrollWidth)) <= 400);
});
