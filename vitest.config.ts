import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["{apps,libs}/*/src/**/*.test.ts", "tools/**/*.test.ts", "bench/**/*.test.ts"],
    exclude: ["**/node_modules/**", "**/dist/**"],
    pool: "forks",
    // One more than the two cores of the smallest machine: about a third of the time tests wait.
    maxWorkers: 3,
    // Of tests that wait side by side within a file: each may have a cluster of its own.
    maxConcurrency: 3,
    // The processes that tests start are the same few programs again and again: they are compiled once.
    env: {
      NODE_COMPILE_CACHE: fileURLToPath(
        new URL("node_modules/.cache/heddle-compiled", import.meta.url),
      ),
    },
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
});
