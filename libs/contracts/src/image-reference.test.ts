import { expect, it } from "vitest";
import { isImageReference } from "./image-reference.ts";

const DIGEST = `sha256:${"0a".repeat(32)}`;

it.each([
  "alpine",
  "alpine:3",
  "library/alpine_x/y-z:3.19_a-B",
  "localhost:5000/a/b",
  "Registry.Example:5000/team/name:v1",
  "[fd00::1]:5000/team/name",
  `ghcr.io/team/name@${DIGEST}`,
  `ghcr.io/team/name:v1@${DIGEST}`,
  "a__b",
])("image reference: %s is accepted", (given) => {
  expect(isImageReference(given)).toBe(true);
});

it.each([
  "bad image name!!",
  "Alpine",
  "a//b",
  "/a",
  "a/",
  "a:",
  `a:${"t".repeat(129)}`,
  "a:-t",
  "a@sha256:0a",
  `a@${DIGEST.toUpperCase()}`,
  "a___b",
  "a..b",
  "https://ghcr.io/a",
  "host:port/a",
  `${"a".repeat(256)}`,
  "",
])("image reference: %s is refused", (given) => {
  expect(isImageReference(given)).toBe(false);
});

it("image reference: a near match is refused fast", () => {
  expect(isImageReference(`${"a-".repeat(250)}!`)).toBe(false);
  expect(isImageReference(`${"a.".repeat(250)}!`)).toBe(false);
  expect(isImageReference(`${"a".repeat(500)}!`)).toBe(false);
});
