import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A step waits: a job that a test only stops takes a tenth of a core, not a whole one. */
const PLUGIN = `
const never = new Int32Array(new SharedArrayBuffer(4));
const world = () => {
  let steps = 0;
  return {
    name: "Slow-v0", observations: 1, actions: 2, continuous: false, maxSteps: 50,
    reset: (_random, seen) => { steps = 0; seen.set([0]); },
    snapshot: () => [steps],
    restore: ([taken = 0]) => { steps = taken; },
    step: (action, seen) => {
      Atomics.wait(never, 0, 0, 1);
      seen.set([++steps / 50]);
      return { reward: Number(action), terminated: false };
    },
  };
};
export default {
  name: "slow", version: "1.0.0", apiVersion: 1,
  setup: ({ environments }) => environments.add("Slow-v0", world),
};
`;

/** The config of a ppo job that runs longer than any test, with four rounds a second at most. */
export const SLOW_JOB = {
  environment: "Slow-v0",
  total_timesteps: 50_000_000,
  num_envs: 4,
  num_steps: 64,
};

/** Writes the plugin of `SLOW_JOB` where the users of tasks can read it. */
export function writeSlowEnvironment(): { readonly path: string; remove(): void } {
  const folder = mkdtempSync(join(tmpdir(), "heddle-slow-"));
  chmodSync(folder, 0o755);
  const path = join(folder, "slow.mjs");
  writeFileSync(path, PLUGIN);
  return { path, remove: () => rmSync(folder, { recursive: true }) };
}
