/**
 * Runs the tests of masters under faults for longer than `npm test` does:
 *
 *     npm run faults -- [--minutes N] [--seed S] [TEST NAME]
 *
 * Each kind of fault continues for N minutes (default 2). The seed chooses faults and calls; the
 * timing of real processes it cannot repeat.
 */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const root = fileURLToPath(new URL("..", import.meta.url));
const TESTS = ["master-faults", "partitions", "disk-faults", "membership-changes"];

const { values, positionals } = readOptions();
const [name] = positionals;
const files = TESTS.map((test) => `apps/master/src/acceptance/masters/${test}.test.ts`);
const filter = name === undefined ? [] : ["-t", name];
const { status } = spawnSync(
  process.execPath,
  ["node_modules/vitest/vitest.mjs", "run", ...files, ...filter],
  {
    cwd: root,
    stdio: "inherit",
    env: {
      ...process.env,
      HEDDLE_FAULT_MINUTES: values.minutes,
      ...(values.seed !== undefined && { HEDDLE_FAULT_SEED: values.seed }),
    },
  },
);
process.exitCode = status ?? 1;

function readOptions() {
  try {
    const parsed = parseArgs({
      options: { minutes: { type: "string", default: "2" }, seed: { type: "string" } },
      allowPositionals: true,
    });
    for (const [option, text] of Object.entries(parsed.values)) {
      if (!(Number(text) > 0)) throw new Error(`--${option} takes a number above 0, got ${text}`);
    }
    return parsed;
  } catch (error) {
    const usage = "npm run faults -- [--minutes N] [--seed S] [TEST NAME]";
    console.error(`${(error as Error).message}\nusage: ${usage}`);
    process.exit(2);
  }
}
