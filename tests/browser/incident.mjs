// Takes a picture of the page at an incident: CHROMIUM PAGE SINCE_NS UNTIL_NS CURSOR_NS IMAGE. PAGE
// is the address that `flatcap view --web` prints.

import { settled, withBrowser } from "./browser.mjs";

const [program, address, since, until, cursor, image] = process.argv.slice(2);
const seconds = (count) => BigInt(count) * 1_000_000_000n;
const view = new URLSearchParams({
  from: String(BigInt(since) - seconds(4)),
  to: String(BigInt(until) + seconds(3)),
  since,
  until,
  cursor,
});

await withBrowser(program, async (open) => {
  const page = await open(`${address}&${view}`);
  await settled(page);
  await page.keyboard.press("e");
  await page.locator("#panel .who").first().waitFor();
  await page.locator('.chart[data-id="disk busy"]').scrollIntoViewIfNeeded();
  await settled(page);
  await page.screenshot({ path: image });
});
