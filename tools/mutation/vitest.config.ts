import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { QuickestFirst } from "./quick-order.ts";
import { targetOf } from "./targets.ts";

// Stryker loads this in a copy of the repository. Tests of other packages see the mutated package's
// source in place of what was compiled of it.

const root = fileURLToPath(new URL("../..", import.meta.url));
const { name, tests, env = {} } = targetOf(process.env["HEDDLE_MUTATION_TARGET"] ?? "");
const [, library] = /^libs\/(\w+)$/.exec(name) ?? [];

export default defineConfig({
  resolve: {
    alias:
      library === undefined
        ? []
        : [
            {
              find: new RegExp(`^@heddle/${library}/(.*)$`),
              replacement: `${root}libs/${library}/src/$1.ts`,
            },
          ],
  },
  test: {
    include: [...tests],
    env,
    isolate: false,
    sequence: { sequencer: QuickestFirst },
    setupFiles: [`${root}tools/mutation/setup.ts`],
    server: { deps: { external: [/\/dist\//] } },
    // Tests count what they cover, which slows some of them a hundredfold; Stryker ends what hangs.
    testTimeout: 600_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 300_000 } },
  },
});
