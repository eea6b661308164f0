// Looks at a recording with known values: CHROMIUM ADDRESS TOKEN SPIKE_NS SPIKE_RATE MARK_NS.

import assert from "node:assert/strict";
import { settled, withBrowser } from "./browser.mjs";

const [program, address, token, spikeText, rateText, markText] = process.argv.slice(2);
const spike = BigInt(spikeText);
const rate = Number(rateText);
const CHART = '.chart[data-id="disk write"]';

/** The view in the address of a page. */
async function held(page) {
  await page.waitForTimeout(250);
  return new URLSearchParams(new URL(page.url()).hash.slice(1));
}

/** Where a time is in a chart, in pixels of the page. */
async function placeOf(page, at) {
  const view = await held(page);
  const [from, to] = [BigInt(view.get("from")), BigInt(view.get("to"))];
  const area = await page.locator(`${CHART} .u-over`).boundingBox();
  const x = area.x + (Number(at - from) / Number(to - from)) * area.width;
  return { x, y: area.y + area.height / 2 };
}

/** Whether a line is drawn near the top of the chart at a place. */
async function isDrawn(page, x) {
  return page.evaluate(([selector, x]) => {
    const canvas = document.querySelector(`${selector} canvas`);
    const box = canvas.getBoundingClientRect();
    const ratio = canvas.width / box.width;
    const left = Math.round((x - box.left) * ratio) - 2;
    const pixels = canvas.getContext("2d").getImageData(left, 0, 5, canvas.height * 0.3).data;
    // Of the colors of the page, lines alone are far from gray.
    for (let at = 0; at < pixels.length; at += 4) {
      if (pixels[at + 3] > 100 && pixels[at + 2] - pixels[at] > 60) return true;
    }
    return false;
  }, [CHART, x]);
}

await withBrowser(program, async (open) => {
  const page = await open(`${address}#token=${token}`);
  await settled(page);
  assert.ok(!page.url().includes(token), "the token is not left in the address");
  assert.equal(await page.locator("#host").textContent(), "<script>document.title='taken'</script>\\u{202e}");
  assert.ok(!(await page.title()).startsWith("taken"));
  assert.ok((await page.locator(".chart").count()) >= 8);
  await page.locator(CHART).scrollIntoViewIfNeeded();
  await settled(page);

  // Four turns of the wheel, from the whole recording to about 2 ms; the spike is drawn at each.
  for (let turn = 0; turn <= 4; turn += 1) {
    const { x, y } = await placeOf(page, spike);
    assert.ok(await isDrawn(page, x), `the spike is drawn after ${turn} turns`);
    await page.mouse.move(x, y);
    if (turn < 4) {
      await page.mouse.wheel(0, -562);
      await settled(page);
    }
  }
  const view = await held(page);
  assert.ok(BigInt(view.get("to")) - BigInt(view.get("from")) < 4000000n, String(view));
  assert.match(await page.locator("#cursor").textContent(), /:\d\d\.000000000 /, "the cursor is at the sample");
  const value = await page.locator(`${CHART} .value`).first().getAttribute("title");
  assert.match(value, /^vda /);
  assert.ok(Math.abs(Number(value.split(" ")[1]) / rate - 1) < 1e-9, value);
  assert.ok((await page.locator("#axis canvas").count()) === 1);

  // Keys: the sample before, of the chart that was clicked, and out again.
  await page.mouse.down();
  await page.mouse.up();
  await page.keyboard.press(",");
  assert.match(await page.locator("#cursor").textContent(), /:\d\d\.990000000 /, "the sample before");
  await page.keyboard.press(".");
  assert.match(await page.locator("#cursor").textContent(), /:\d\d\.000000000 /, "and after");
  await page.keyboard.press("0");
  await settled(page);

  // A selection is explained, and a row of the explanation becomes a chart.
  const [from, to] = [await placeOf(page, spike), await placeOf(page, spike + 800000000n)];
  await page.mouse.move(from.x, from.y);
  await page.mouse.down();
  await page.mouse.move((from.x + to.x) / 2, from.y);
  await page.mouse.move(to.x, from.y);
  await page.mouse.up();
  await page.keyboard.press("e");
  await page.locator("#panel .who", { hasText: "billing" }).first().waitFor();
  await settled(page);
  // By keys alone, the focus is in the list, and arrows move it from row to row.
  const row = () => page.evaluate(() => {
    const rows = [...document.querySelectorAll("#panel button")];
    return rows.indexOf(document.activeElement);
  });
  assert.equal(await row(), 1);
  await page.keyboard.press("ArrowUp");
  assert.equal(await row(), 0);
  await page.keyboard.press("ArrowDown");
  assert.equal(await row(), 1);
  await page.locator("#panel button", { hasText: "run_time" }).first().click();
  await page.locator('.chart[data-id*="billing"]').waitFor();
  await settled(page);
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");

  // A search leads to a field; keys alone do.
  await page.keyboard.press("/");
  await page.keyboard.type("disk writes_merged");
  await page.keyboard.press("Enter");
  await page.locator('.chart[data-id="disk.devices[*].writes_merged"]').waitFor();
  await page.keyboard.press("Escape");

  // The address restores all of it in another page.
  await page.keyboard.press("+");
  await settled(page);
  const before = await held(page);
  assert.equal(before.getAll("pin").length, 2);
  const hostile = 'process.processes["\u001b[31m\u202eevil\u0007[666]"].resident_size';
  const markup = "<img src=x onerror=document.title='taken'>";
  before.append("pin", hostile);
  before.append("pin", markup);
  const again = await open(`${address}#token=${token}&${before}`);
  await settled(again);
  const restored = await held(again);
  for (const name of ["from", "to", "cursor"]) assert.equal(restored.get(name), before.get(name), name);
  assert.deepEqual(restored.getAll("pin"), before.getAll("pin"));
  const titles = await again.locator(".chart h2").allTextContents();
  assert.ok(titles.some((title) => title.includes("\\u{1b}[31m\\u{202e}evil\\u{7}")), String(titles));
  assert.ok(titles.includes(markup) && (await again.locator("#charts img").count()) === 0);

  // A mark is a flag with its text, without what would clear a terminal.
  await again.keyboard.press("0");
  await settled(again);
  await again.evaluate(() => scrollTo(0, 0));
  const mark = await placeOf(again, BigInt(markText));
  const top = await again.locator(".chart").first().boundingBox();
  await again.mouse.move(mark.x, top.y + 50);
  assert.match(await again.locator("#cursor").textContent(), /deploy 1\.2\.3 \\u\{1b\}\[2J/);
  // So is a snapshot, whose reason is no markup.
  const kept = await placeOf(again, spike);
  await again.mouse.move(kept.x, top.y + 50);
  assert.match(await again.locator("#cursor").textContent(), /snapshot oom-1: <script>/);

  // 400 pixels, in the dark: nothing is cut off, and colors follow the system.
  const color = (one) => one.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const narrow = await open(`${address}#token=${token}`, { width: 400, height: 800, scheme: "dark" });
  await settled(narrow);
  assert.ok((await narrow.evaluate(() => document.documentElement.scrollWidth)) <= 400);
  assert.notEqual(await color(narrow), await color(page));
  await narrow.keyboard.press("?");
  await narrow.locator("#panel dl").waitFor();
  assert.ok((await narrow.evaluate(() => document.documentElement.scrollWidth)) <= 400);

  // Without a token the page asks for it, and goes on with it.
  const locked = await open(address);
  await locked.evaluate(() => sessionStorage.clear());
  await locked.reload();
  await locked.locator("#panel input").fill(`http://127.0.0.1/#token=${token}`);
  await locked.keyboard.press("Enter");
  await settled(locked);
  // The refusals, of the field that is none and without the token, are in the console.
}, ["Failed to load resource: the server responded with a status of 4"]);
