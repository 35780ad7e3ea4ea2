// holds: ps-kernels

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { KERNEL_MODULES, sourceLine } from "./build-kernels.ts";

test.each(KERNEL_MODULES)(
  "kernels: the committed module is that of $source (npm run kernels)",
  (module) => {
    const file = new URL(`../${module.generated}`, import.meta.url);
    expect(readFileSync(file, "utf8").split("\n")).toContain(sourceLine(module));
  },
);
