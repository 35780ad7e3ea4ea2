// holds: no-secret-leaks

import { expect, test } from "vitest";
import { CanarySearch, formsOf } from "../../../test/secrecy/canary-search.ts";

const SECRET = 'canary "7f/+?' + "\u00e9 a\\b";
const canary = { name: "token", secret: SECRET };
const search = new CanarySearch([canary]);
const leaks = (text: string | Buffer) =>
  search.leaks([{ name: "file x", bytes: Buffer.from(text as string) }]);

test("canaries: a secret is found in each form, wherever it begins", () => {
  const around = (text: string) => `before ${text} after`;
  const written = [
    around(SECRET),
    around(JSON.stringify({ a: SECRET })),
    around(encodeURIComponent(SECRET)),
    around(new URLSearchParams({ token: SECRET }).toString()),
    around(Buffer.from(SECRET).toString("hex")),
    around(Buffer.from(SECRET).toString("hex").toUpperCase()),
    Buffer.from(around(SECRET), "utf16le"),
  ];
  for (const text of written) expect(leaks(text), String(text)).not.toEqual([]);
  for (let before = 0; before < 6; before++) {
    const bytes = Buffer.from(`${"x".repeat(before)}${SECRET}${"y".repeat(before)}`);
    for (const form of ["base64", "base64url"] as const) {
      expect(leaks(around(bytes.toString(form))), `${form} after ${before}`).not.toEqual([]);
    }
  }
});

test("canaries: a part of a secret and another one are no leak", () => {
  const other = Buffer.from(SECRET.replace("7", "8"));
  for (const text of [SECRET.slice(1), SECRET.slice(0, -1), other.toString("base64")]) {
    expect(leaks(text)).toEqual([]);
  }
});

test("canaries: a secret may be in the places that are named, and in no other", () => {
  const allowed = new CanarySearch([{ ...canary, allowed: /^file .*\/admin-key$/ }]);
  const places = ["file /a/admin-key", "file /a/log", "output admin-key"].map((name) => {
    return { name, bytes: Buffer.from(SECRET) };
  });
  expect(allowed.leaks(places)).toEqual([
    "token (plain) in file /a/log",
    "token (plain) in output admin-key",
  ]);
});

test("canaries: one that chance could write is refused", () => {
  expect(() => formsOf("short")).toThrow("12 characters");
});
