// holds: ps-kernels

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { generatedKernelsFile, sourceLine } from "./build-kernels.ts";

test("the committed kernels are those of their source (npm run kernels)", () => {
  expect(readFileSync(generatedKernelsFile, "utf8").split("\n")).toContain(sourceLine());
});
