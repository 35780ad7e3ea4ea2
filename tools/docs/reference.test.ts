import { readdirSync } from "node:fs";
import { join } from "node:path";
import { ERROR_TABLE } from "@heddle/base/errors";
import { expect, it } from "vitest";
import { referencePages } from "./reference-pages.ts";

const folder = join(import.meta.dirname, "../../docs/reference");
const pages = referencePages();

it("reference: has the generated pages and no other", () => {
  expect(readdirSync(folder).sort()).toEqual(Object.keys(pages).sort());
});

it("reference: every field, flag and setting has a meaning", () => {
  const rows = Object.values(pages).flatMap((text) => text.match(/^\| `.*\|$/gm) ?? []);
  expect(rows.length).toBeGreaterThan(200);
  expect(rows.filter((row) => /\| *\|$/.test(row))).toEqual([]);
});

// holds: ops-error-page
it("reference: every error code has a row", () => {
  const codes = [...(pages["errors.md"] ?? "").matchAll(/^\| `(\w+)` \|/gm)].map(
    ([, code]) => code,
  );
  expect(codes).toEqual(Object.keys(ERROR_TABLE));
});
