import { expect, test } from "vitest";
import { readsWeights, withHugePages } from "./huge-pages.ts";

test("glibc is asked for huge pages, beside what the user tells it already", () => {
  expect(withHugePages({ A: "b" })).toEqual({ A: "b", GLIBC_TUNABLES: "glibc.malloc.hugetlb=1" });
  expect(withHugePages({ GLIBC_TUNABLES: "glibc.malloc.arena_max=2" })).toEqual({
    GLIBC_TUNABLES: "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1",
  });
});

test("a user's own choice of huge pages stands", () => {
  const environment = { GLIBC_TUNABLES: "glibc.malloc.hugetlb=0" };
  expect(withHugePages(environment)).toBe(environment);
});

test("weights that would take more than a quarter of the memory at hand stay a mapped file", () => {
  expect(readsWeights(100, 400)).toBe(true);
  expect(readsWeights(101, 400)).toBe(false);
});
