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

test("the code's version is the release with a digest of the code, the same each time", () => {
  const version = codeVersion("1.2.3", []);
  expect(version).toMatch(/^1\.2\.3\+[0-9a-f]{16}$/);
  expect(codeVersion("1.2.3", [])).toBe(version);
  expect(codeVersion("1.2.3", [join(folder, "plugin.mjs")])).not.toBe(version);
});

test("another byte of a program or of a plugin is another digest; tests and declarations are none", () => {
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
