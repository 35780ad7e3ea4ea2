import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";

// The simulation replaces clocks and timers, and so runs in a process of its own.

const MAIN = fileURLToPath(new URL("cluster-simulation/main.ts", import.meta.url));
/** HEDDLE_CLUSTER_SEEDS sets another number; HEDDLE_CLUSTER_SEED names the first one. */
const SEEDS = Number(process.env["HEDDLE_CLUSTER_SEEDS"] ?? 8);
const FIRST_SEED =
  process.env["HEDDLE_CLUSTER_SEED"] ?? String(1_000 + Math.floor(Math.random() * 1e6));
const SECONDS = "20";

async function simulate(...args: string[]) {
  const all = [MAIN, "--seconds", SECONDS, ...args];
  const run = promisify(execFile)(process.execPath, all, { maxBuffer: 2 ** 26 });
  const { stdout, code } = await run.then(
    (done) => ({ ...done, code: 0 }),
    (failed) => failed as { readonly stdout: string; readonly code: number },
  );
  return { stdout, code };
}

describe("whole cluster simulation", () => {
  // holds: sim-cluster
  it(`invariants: hold under faults for ${SEEDS} random seeds`, {
    timeout: 120_000 + SEEDS * 60_000,
  }, async () => {
    const { stdout, code } = await simulate("--seeds", String(SEEDS), "--seed", FIRST_SEED);
    console.log(stdout);
    expect(stdout).toContain(" 0 failed");
    expect(code).toBe(0);
  });

  // holds: sim-cluster-repeat
  it("a seed: runs identically each time, also after others", async () => {
    const runs = [
      ["--seeds", "1", "--seed", "3"],
      ["--seeds", "2", "--seed", "2"],
    ];
    const traces = runs.map(async (seeds) => {
      const { stdout } = await simulate(...seeds, "--trace");
      return stdout.split("\n").filter((line) => / ms {2}/.test(line));
    });
    const [alone = [], after = []] = await Promise.all(traces);
    expect(alone.length).toBeGreaterThan(20);
    expect(after.slice(-alone.length)).toEqual(alone);
  });

  // holds: sim-cluster-planted
  it.each([
    ["longLease", "cutWorker"],
    ["fencesEarly", "cutWorker"],
    ["answersEarly", "masterCrash"],
    ["damagesLogs", "slowNetwork"],
  ])("planted bug: %s is found under %s", async (bug, faults) => {
    const args = ["--bug", bug, "--faults", faults, "--seeds", "40", "--first-failure"];
    const { stdout, code } = await simulate(...args, "--seconds", "40");
    console.log(stdout);
    expect(stdout).toContain(" 1 failed");
    expect(stdout).not.toContain("no code throws");
    expect(code).toBe(1);
  });
});
