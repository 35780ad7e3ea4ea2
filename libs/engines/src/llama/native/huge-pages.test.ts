import { statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { setLoadMode, withHugePages } from "./huge-pages.ts";

test("huge pages: glibc is asked for them, beside the tunables that the user has set", () => {
  expect(withHugePages({ A: "b" })).toEqual({ A: "b", GLIBC_TUNABLES: "glibc.malloc.hugetlb=1" });
  expect(withHugePages({ GLIBC_TUNABLES: "glibc.malloc.arena_max=2" })).toEqual({
    GLIBC_TUNABLES: "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1",
  });
});

test("huge pages: a user's own choice is kept", () => {
  const environment = { GLIBC_TUNABLES: "glibc.malloc.hugetlb=0" };
  expect(withHugePages(environment)).toBe(environment);
});

test.each([
  ["a quarter of the available memory is read into memory of its own", 0, 4, 0],
  ["more stays mapped", 1, 4, -1],
])("huge pages: a file of %s", (_, less, times, mode) => {
  const path = fileURLToPath(import.meta.url);
  const params = { load_mode: -1 };
  setLoadMode(params, path, statSync(path).size * times - less);
  expect(params.load_mode).toBe(mode);
});
