import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { readsWeights, setLoadMode, withHugePages } from "./huge-pages.ts";

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

test("huge pages: weights larger than a quarter of the available memory stay mapped", () => {
  expect(readsWeights(100, 400)).toBe(true);
  expect(readsWeights(101, 400)).toBe(false);
});

test("huge pages: the library reads a small file into memory of its own", () => {
  const params = { load_mode: -1 };
  setLoadMode(params, fileURLToPath(import.meta.url));
  expect(params.load_mode).toBe(0);
});
