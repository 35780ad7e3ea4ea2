// holds: ops-error-page

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { ERROR_TABLE } from "./errors.ts";

test("docs/errors.md: lists every code as the error table has it", () => {
  const page = readFileSync(new URL("../../../docs/errors.md", import.meta.url), "utf8");
  const row = /^\| `(\w+)` +\| (\d+) +\| (\d+) +\| (yes|no) +\| (.+?) +\|$/gm;
  const told = [...page.matchAll(row)].map(([, code, http, exit, retry, meaning]) => {
    expect(meaning).not.toBe("");
    return [code, Number(http), Number(exit), retry === "yes"];
  });
  const known = Object.entries(ERROR_TABLE);
  expect(told).toEqual(known.map(([code, row]) => [code, row.http, row.exit, row.retryable]));
});
