import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";

// The simulation replaces clocks and timers, and so runs in a process of its own.

const MAIN = fileURLToPath(new URL("cluster-simulation/main.ts", import.meta.url));
/**
 * HEDDLE_CLUSTER_SEEDS sets another number; HEDDLE_CLUSTER_SEED names the first one. By default the
 * seeds are fixed: the same code passes each time. A soak looks for faults with other seeds.
 */
const SEEDS = Number(process.env["HEDDLE_CLUSTER_SEEDS"] ?? 500);
const FIRST_SEED = Number(process.env["HEDDLE_CLUSTER_SEED"] ?? 1);
/** With faults of parameter servers and trainers alone. */
const TRAINING_SEEDS = 4;
/** Processes that share the seeds. */
const PROCESSES = 2;
/** With faults, in each seed. */
const SECONDS = 8;
const TIMEOUT_MS = 120_000 + SEEDS * 5_000;

/** Found within the first seeds; `npm run simulate:cluster -- --bugs all` looks for all of them. */
const QUICK_BUGS = [
  "skipNoOp",
  "longLease",
  "leaseFromAnswer",
  "answersEarly",
  "fencesEarly",
  "damagesLogs",
  "sharesDevices",
  "splitsGangs",
  "losesJobs",
  "leaksUsage",
  "passesQuotas",
  "dropsEvents",
  "acceptsRepeats",
  "writesAnyVersion",
  "takesStaleCalls",
];
/** The faults of parameter servers and trainers. */
const TRAINING_FAULTS = [
  "serverCrash",
  "serverDiskLoss",
  "serverPause",
  "cutServer",
  "resetConnections",
  "programCrash",
  "fullDisk",
];

async function simulate(...args: (string | number)[]) {
  const all = [MAIN, ...args.map(String)];
  const run = promisify(execFile)(process.execPath, all, { maxBuffer: 2 ** 26 });
  const { stdout, code } = await run.then(
    (done) => ({ ...done, code: 0 }),
    (failed) => failed as { readonly stdout: string; readonly code: number },
  );
  return { stdout, code };
}

describe("whole cluster simulation", () => {
  // holds: sim-cluster
  it(`invariants: hold under faults for ${SEEDS} seeds`, {
    timeout: TIMEOUT_MS,
  }, async () => {
    const share = Math.ceil(SEEDS / PROCESSES);
    const runs = Array.from({ length: PROCESSES }, (_, at) => {
      const seeds = ["--seeds", share, "--seed", FIRST_SEED + at * share];
      return simulate("--seconds", SECONDS, ...seeds);
    });
    for (const { stdout, code } of await Promise.all(runs)) {
      console.log(stdout);
      expect(stdout).toContain(" 0 failed");
      expect(code).toBe(0);
    }
  });

  // holds: sim-cluster-training
  it("training: each push is applied once, and checkpoints are whole, under faults", {
    timeout: TIMEOUT_MS,
  }, async () => {
    const seeds = ["--seeds", TRAINING_SEEDS, "--seed", FIRST_SEED, "--seconds", 20];
    const faults = ["--trains", "--faults", TRAINING_FAULTS.join()];
    const { stdout, code } = await simulate(...seeds, ...faults);
    console.log(stdout);
    expect(stdout).toContain(" 0 failed");
    expect(Number(/(\d+) updates/.exec(stdout)?.[1])).toBeGreaterThan(0);
    expect(code).toBe(0);
  });

  // holds: sim-cluster-repeat
  it("a seed: runs identically each time, also after others", { timeout: TIMEOUT_MS }, async () => {
    const runs = [
      ["--seeds", 1, "--seed", 7031],
      ["--seeds", 2, "--seed", 7030],
    ];
    const traces = runs.map(async (seeds) => {
      const { stdout } = await simulate("--seconds", SECONDS, ...seeds, "--trains", "--trace");
      return stdout.split("\n").filter((line) => / ms {2}/.test(line));
    });
    const [alone = [], after = []] = await Promise.all(traces);
    expect(alone.length).toBeGreaterThan(20);
    expect(after.slice(-alone.length)).toEqual(alone);
  });

  // holds: sim-cluster-planted
  it("planted bugs: one of each kind is found", { timeout: TIMEOUT_MS }, async () => {
    const bugs = ["--bugs", QUICK_BUGS.join(), "--seeds", 12, "--seconds", 20];
    const { stdout, code } = await simulate(...bugs);
    console.log(stdout);
    expect(stdout).toContain(`${QUICK_BUGS.length} of ${QUICK_BUGS.length} bugs found`);
    expect(stdout).not.toContain("no code throws");
    expect(code).toBe(0);
  });
});
