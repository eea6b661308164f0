// Builds the page: src/ becomes assets/, compressed. With --check, compares instead of writing;
// with --test, runs the tests of what draws. docs/ARCHITECTURE.md, "Views", says what is in here.

import { build } from "esbuild";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { gunzipSync, gzipSync } from "node:zlib";

const folder = dirname(fileURLToPath(import.meta.url));
const options = {
  absWorkingDir: folder,
  bundle: true,
  write: false,
  target: "es2022",
  charset: "ascii",
  logLevel: "warning",
};

/** Returns the one file that esbuild makes of another one. */
async function built(entry, more) {
  const result = await build({ ...options, entryPoints: [entry], ...more });
  return Buffer.from(result.outputFiles[0].contents);
}

async function assets() {
  const script = { format: "esm", minify: true, legalComments: "none" };
  return {
    "index.html": readFileSync(join(folder, "src/index.html")),
    "icon.svg": readFileSync(join(folder, "src/icon.svg")),
    "page.js": await built("src/page.ts", script),
    "page.css": await built("src/page.css", { minify: true }),
  };
}

if (process.argv.includes("--test")) {
  // Node cannot run TypeScript, so the tests are bundled first.
  const made = mkdtempSync(join(tmpdir(), "flatcap-page-"));
  const file = join(made, "tests.mjs");
  writeFileSync(file, await built("tests/all.ts", { format: "esm", platform: "node" }));
  process.on("exit", () => rmSync(made, { recursive: true }));
  await import(pathToFileURL(file));
} else {
  const isCheck = process.argv.includes("--check");
  let total = 0;
  for (const [name, content] of Object.entries(await assets())) {
    const path = join(folder, "assets", `${name}.gz`);
    // Compressed bytes differ between versions of zlib, so the content is compared.
    if (isCheck && !content.equals(gunzipSync(readFileSync(path)))) {
      console.error(`assets/${name}.gz is not what web/src makes; run npm run build in web/`);
      process.exitCode = 1;
    } else if (!isCheck) {
      writeFileSync(path, gzipSync(content, { level: 9 }));
    }
    total += readFileSync(path).length;
  }
  console.log(`${total} bytes compressed`);
}
