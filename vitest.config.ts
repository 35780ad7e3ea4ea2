import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { filesRunTogether, LongestFirst } from "./tools/test-order.ts";

const root = fileURLToPath(new URL(".", import.meta.url));
const together = filesRunTogether(root);

export default defineConfig({
  test: {
    pool: "forks",
    // Twice the two cores of the smallest machine: about half of the time tests wait.
    maxWorkers: 4,
    // Of tests that wait side by side within a file: each may have a cluster of its own.
    maxConcurrency: 3,
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        extends: true,
        test: {
          name: "alone",
          include: ["{apps,libs}/*/src/**/*.test.ts", "tools/**/*.test.ts", "bench/**/*.test.ts"],
          exclude: ["**/node_modules/**", "**/dist/**", ...together],
        },
      },
      { extends: true, test: { name: "together", include: together, isolate: false } },
    ],
    // What the packages of this repository export is compiled already.
    server: { deps: { external: [/\/dist\//] } },
    env: {
      // The processes that tests start are the same few programs again and again: they are compiled once.
      NODE_COMPILE_CACHE: `${root}node_modules/.cache/heddle-compiled`,
    },
    // A machine that stands still for some seconds makes no test fail; one that hangs is told soon enough.
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});
