import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Heddle } from "@heddle/client/heddle";
import { repositoryRoot } from "../support/command-line.ts";
import type { AcceptedJob } from "./job-load.ts";
import { untilAnswered } from "./until-answered.ts";

const TRIES = 60;
const END_MS = 240_000;
const FREE_MS = 60_000;

export interface JobAudit {
  /** Jobs that did not succeed, with how they ended. */
  readonly lost: readonly string[];
  /** Jobs whose log differs from what they printed. */
  readonly wrongLogs: readonly string[];
  /** Jobs of this run that the cluster has, whatever their state. */
  readonly listed: number;
  readonly succeeded: number;
  readonly afterMs: readonly number[];
}

/** Waits for the end of all jobs, and compares what they left with what they were. */
export async function auditJobs(
  heddle: Heddle,
  run: string,
  jobs: readonly AcceptedJob[],
): Promise<JobAudit> {
  const late = sleep(END_MS, undefined, { ref: false }).then(() => ({
    state: `still live ${END_MS / 1_000} s after the last fault`,
    afterMs: Number.NaN,
  }));
  const lost: string[] = [];
  const wrongLogs: string[] = [];
  const afterMs: number[] = [];
  for (const { id, name, lines, ended } of jobs) {
    const end = await Promise.race([ended, late]);
    if (end.state !== "succeeded") lost.push(`${name} ${id}: ${end.state}`);
    else {
      afterMs.push(end.afterMs);
      const printed = lines && (await untilAnswered(TRIES, () => logOf(heddle, id)));
      if (lines && printed !== lines.join("\n")) wrongLogs.push(`${name} ${id}: ${printed}`);
    }
  }
  let listed = 0;
  await untilAnswered(TRIES, async () => {
    listed = 0;
    for await (const _ of heddle.jobs.list({ label: `run=${run}`, limit: 1_000 })) listed += 1;
  });
  return { lost, wrongLogs, listed, succeeded: afterMs.length, afterMs };
}

/** The lines of the last attempt. */
async function logOf(heddle: Heddle, id: string): Promise<string> {
  const lines: string[] = [];
  for await (const entry of heddle.jobs.logs(id, { stream: "stdout" })) {
    lines.push(entry.type === "line" ? entry.text : `(a gap of ${entry.bytes} bytes)`);
  }
  return lines.join("\n");
}

/** The tasks that nodes still have; none after some time where all is given back. */
export async function tasksLeft(heddle: Heddle): Promise<readonly string[]> {
  const deadline = Date.now() + FREE_MS;
  for (;;) {
    const nodes = await untilAnswered(TRIES, () => heddle.workers.list());
    const left = nodes.flatMap(({ name, jobs }) =>
      (jobs?.tasks ?? []).map((task) => `${name}: ${task.job_id} ${task.phase}`),
    );
    if (left.length === 0 || Date.now() > deadline) return left;
    await sleep(1_000);
  }
}

/** Exports the event log and verifies it offline with its own keys. */
export async function verifyLog(
  heddle: Heddle,
  folder: string,
): Promise<{ readonly isValid: boolean; readonly said: string; readonly events: number }> {
  mkdirSync(folder, { recursive: true });
  const file = join(folder, "events.jsonl");
  const reply = await untilAnswered(TRIES, () => heddle.events.export());
  writeFileSync(file, await reply.text());
  const newest = () => heddle.events.query({ order: "desc", limit: 1 }).page();
  const { data } = await untilAnswered(TRIES, newest);
  const { origin, keys } = await untilAnswered(TRIES, () => heddle.events.keys());
  const program = join(repositoryRoot, "apps/cli/dist/main.js");
  const trusted = keys.flatMap((key) => ["--key", key]);
  const args = [program, "events", "verify", file, "--origin", origin, ...trusted];
  const run = spawnSync(process.execPath, args, { encoding: "utf8" });
  const said = `${run.stdout}${run.stderr}`.trim();
  return { isValid: run.status === 0, said, events: Number(data[0]?.sequence ?? -1) + 1 };
}
