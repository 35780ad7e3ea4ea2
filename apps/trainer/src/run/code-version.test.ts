import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { codeDigest, codeVersion } from "./code-version.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-code-"));
  mkdirSync(join(folder, "lib/inner"), { recursive: true });
  write("lib/a.js", "1");
  write("lib/inner/b.js", "2");
  write("plugin.mjs", "3");
});
afterEach(() => rmSync(folder, { recursive: true }));

const write = (name: string, text: string) => writeFileSync(join(folder, name), text);
const digest = () => codeDigest([join(folder, "lib")], [join(folder, "plugin.mjs")]);

test("code version: the release with a reproducible digest of the code", () => {
  const version = codeVersion("1.2.3", []);
  expect(version).toMatch(/^1\.2\.3\+[0-9a-f]{16}$/);
  expect(codeVersion("1.2.3", [])).toBe(version);
  expect(codeVersion("1.2.3", [join(folder, "plugin.mjs")])).not.toBe(version);
});

test("digest: depends on programs and plugins, not on tests and declarations", () => {
  const before = digest();
  write("lib/a.test.js", "x");
  write("lib/a.d.ts", "x");
  write("lib/a.js.map", "x");
  expect(digest()).toBe(before);
  const seen = new Set([before]);
  for (const [name, text] of [
    ["lib/inner/b.js", "4"],
    ["plugin.mjs", "5"],
    ["lib/c.js", ""],
  ] as const) {
    write(name, text);
    seen.add(digest());
  }
  expect(seen.size).toBe(4);
});
