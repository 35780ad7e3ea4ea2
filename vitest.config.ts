import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["{apps,libs}/*/src/**/*.test.ts", "tools/**/*.test.ts", "bench/**/*.test.ts"],
    exclude: ["**/node_modules/**", "**/dist/**"],
    pool: "forks",
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
});
