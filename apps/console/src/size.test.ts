// holds: console-size

import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";

const SITE = fileURLToPath(new URL("../dist/site/", import.meta.url));
const zippedBytes = (path: string) => gzipSync(readFileSync(SITE + path), { level: 9 }).length;
const sum = (paths: readonly string[]) =>
  paths.reduce((bytes, path) => bytes + zippedBytes(path), 0);

test("console: the JavaScript of its first page has at most 180 KB gzipped", () => {
  const page = readFileSync(`${SITE}index.html`, "utf8");
  const initial = [...page.matchAll(/(?:src|href)="\/console\/(assets\/[^"]+\.js)"/g)];
  const paths = initial.map(([, path = ""]) => path);
  expect(paths.length).toBeGreaterThan(0);
  expect(sum(paths)).toBeLessThanOrEqual(180_000);
});

test("console: all of its JavaScript and styles have at most 350 KB gzipped", () => {
  const paths = globSync("assets/*.{js,css}", { cwd: SITE });
  expect(paths.length).toBeGreaterThan(5);
  expect(sum(paths)).toBeLessThanOrEqual(350_000);
});

test("console: it names no address of another site", () => {
  for (const path of globSync("assets/*.{js,css}", { cwd: SITE })) {
    const text = readFileSync(SITE + path, "utf8");
    const addresses = [...text.matchAll(/https?:\/\/\w[\w.-]+/g)].map(([address]) => address);
    // Names of XML, and addresses that messages name; nothing loads them.
    const known = /^https?:\/\/(www\.w3\.org|react\.dev|localhost|127\.0\.0\.1)$/;
    expect(
      addresses.filter((address) => !known.test(address)),
      path,
    ).toEqual([]);
  }
});
