// holds: console-size

import { globSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { initialBytes, SITE_FOLDER, totalBytes } from "../test/site-size.ts";

test("console: the JavaScript of its first page has at most 180 KB gzipped", () => {
  expect(initialBytes()).toBeLessThanOrEqual(180_000);
});

test("console: all of its JavaScript and styles have at most 350 KB gzipped", () => {
  expect(totalBytes()).toBeLessThanOrEqual(350_000);
});

test("console: it names no address of another site", () => {
  for (const path of globSync("assets/*.{js,css}", { cwd: SITE_FOLDER })) {
    const text = readFileSync(SITE_FOLDER + path, "utf8");
    const addresses = [...text.matchAll(/https?:\/\/\w[\w.-]+/g)].map(([address]) => address);
    // Names of XML, and addresses that messages name; nothing loads them.
    const known = /^https?:\/\/(www\.w3\.org|react\.dev|localhost|127\.0\.0\.1)$/;
    expect(
      addresses.filter((address) => !known.test(address)),
      path,
    ).toEqual([]);
  }
});
