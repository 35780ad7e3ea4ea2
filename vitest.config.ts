import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import LONG_TESTS from "./tools/long-tests.json" with { type: "json" };
import { filesRunTogether, LongestFirst } from "./tools/test-order.ts";

const root = fileURLToPath(new URL(".", import.meta.url));
/** `npm test` leaves them out; vitest by itself does not. */
const leftOut = process.env["HEDDLE_TESTS"] === "short" ? LONG_TESTS : [];
const together = filesRunTogether(root);

export default defineConfig({
  test: {
    pool: "forks",
    runner: "./tools/nx/timely-runner.ts",
    // What tests run in their own process allocates as fast as a master.
    execArgv: ["--min-semi-space-size=16"],
    globalSetup: ["tools/programs.mjs"],
    setupFiles: ["tools/reply-check/setup.ts"],
    // Three times the two cores of the smallest machine: files with processes mostly wait.
    maxWorkers: Math.max(6, availableParallelism()),
    // Of tests that wait side by side within a file: each may have a cluster of its own.
    maxConcurrency: 3,
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        extends: true,
        test: {
          name: "alone",
          include: ["{apps,libs}/*/src/**/*.test.ts", "tools/**/*.test.ts", "bench/**/*.test.ts"],
          exclude: ["**/node_modules/**", "**/dist/**", ...together, ...leftOut],
        },
      },
      {
        extends: true,
        test: { name: "together", include: together, exclude: [...leftOut], isolate: false },
      },
    ],
    // What the packages of this repository export is compiled already.
    server: { deps: { external: [/\/dist\//] } },
    env: {
      // The processes that tests start are the same few programs again and again: they are compiled once.
      NODE_COMPILE_CACHE: `${root}node_modules/.cache/heddle-compiled`,
      // Each new master fills a segment of its log with zeros, and a restarted one reads it whole.
      HEDDLE_WAL_SEGMENT_MIB: "4",
    },
    // A slow or loaded machine makes no test fail; a hang still ends the run.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 100_000 } },
  },
});
