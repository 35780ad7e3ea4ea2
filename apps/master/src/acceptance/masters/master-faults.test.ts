// holds: state-exactly-once, jobs-idempotency, jobs-consistency

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { eventually } from "@heddle/base/testing/eventually";
import { held } from "@heddle/base/testing/held";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { FAULT_TIMEOUT_MS, type FaultRun, startFaultRun } from "../../../test/faults/fault-run.ts";

// Three masters as processes under faults, while clients change and read settings through all of
// them. Every history is checked: linearizable, nothing lost, nothing twice. HEDDLE_FAULT_MINUTES
// makes the runs longer (npm run faults).

const CLOCK_SKEW = fileURLToPath(new URL("../../../test/faults/clock-skew.ts", import.meta.url));

let clocks = "";
const clockFile = (name: string) => join(clocks, name);
let run: FaultRun | undefined;

beforeAll(() => {
  clocks = mkdtempSync(join(tmpdir(), "heddle-clock-"));
});
/** After a failed test the next one gets new masters. */
afterEach(async ({ task }) => {
  if (task.result?.state === "pass") return;
  await run?.close();
  run = undefined;
});
afterAll(async () => {
  await run?.close();
  rmSync(clocks, { recursive: true });
});

/** Reuses the masters of the previous test, if any; their clocks are right. */
async function begin(title: string): Promise<FaultRun> {
  await run?.resume(title);
  const options = `${process.env["NODE_OPTIONS"] ?? ""} --import=${CLOCK_SKEW}`;
  run ??= await startFaultRun({
    title,
    place: (name) => ({
      env: { HEDDLE_TEST_CLOCK_FILE: clockFile(name), NODE_OPTIONS: options },
    }),
  });
  return run;
}

describe("linearizable histories", { timeout: FAULT_TIMEOUT_MS }, () => {
  // holds: masters-kill
  it("kill -9 of the leader and of followers, with restarts", async () => {
    const run = await begin("kill -9");
    const { group, workload, pick } = run;
    for (const round of run.rounds(2)) {
      await workload.progress(60);
      const leader = await group.leader();
      const follower = pick(group.names.filter((name) => name !== leader));
      const victim = round % 2 === 0 ? leader : follower;
      await group.end(victim, "SIGKILL");
      await workload.progress(60);
      await group.start(victim);
    }
    await run.finish();
    expect(workload.history.length).toBeGreaterThan(240);
  });

  // holds: masters-stop
  it("stopped leader: it steps down, and answers nothing stale", async () => {
    const run = await begin("SIGSTOP");
    const { group, workload, random } = run;
    for (const _ of run.rounds(1)) {
      await workload.progress(60);
      const stopped = await group.leader();
      const others = group.names.filter((name) => name !== stopped);
      const { term: ledTerm } = await group.status(stopped);
      group.signal(stopped, "SIGSTOP");
      let next = "";
      await eventually(async () => {
        next = await group.leader(others).catch(() => "");
        return others.includes(next);
      }, "the others have a new leader");
      await workload.progress(15);
      await delay(random() * 500);
      // No client of the workload writes this one.
      const other = "/api/v1/cluster/settings/overcommit_ratio";
      const changed = await group.change(next, "PUT", other, { value: 1 + random() });
      const newest = ((await changed.json()) as { version: number }).version;
      const labelled = held(
        Promise.all([1, 2, 3, 4].map(() => group.request(stopped, "GET", other))),
      );
      const status = held(group.status(stopped));
      // Reads that were sent during the stop are answered first.
      const strong = "/api/v1/cluster/settings/job_timeout?consistency=strong";
      const early = held(
        Promise.all(Array.from({ length: 8 }, () => group.request(stopped, "GET", strong))),
      );
      let version = 0;
      await eventually(async () => {
        const before = await group.request(others[0] as string, "GET", strong);
        version = ((await before.json()) as { version: number }).version;
        return before.status === 200;
      }, "the new leader answers");
      group.signal(stopped, "SIGCONT");
      for (const reply of await early) {
        const seen = (await reply.json()) as { version?: number };
        if (reply.status === 200) expect(seen.version).toBeGreaterThanOrEqual(version);
        else expect(reply.status).toBe(503);
      }
      for (const reply of await labelled) {
        const isNew = ((await reply.json()) as { version: number }).version >= newest;
        expect(isNew || reply.headers.get("x-may-be-stale") === "true").toBe(true);
      }
      const { term, may_be_stale: mayBeStale } = await status;
      expect(term > ledTerm || mayBeStale).toBe(true);
      // It may have been elected again since, in a later term.
      await group.leader();
      expect((await group.status(stopped)).term).toBeGreaterThan(ledTerm);
    }
    await run.finish();
  });

  // holds: masters-clock
  it("clock jumps of an hour and back", async () => {
    const run = await begin("clock jump");
    const { group, workload, pick } = run;
    for (const _ of run.rounds(2)) {
      await workload.progress(60);
      for (const name of [await group.leader(), pick(group.names)]) {
        writeFileSync(clockFile(name), String(pick([-3_600_000, 0, 3_600_000])));
      }
    }
    await workload.progress(60);
    await run.finish();
    for (const name of group.names) rmSync(clockFile(name), { force: true });
  });

  // holds: masters-quorum-lost
  it("lost majority: changes end with 503, reads are labelled, and it recovers", async () => {
    const run = await begin("no majority");
    const { group, workload } = run;
    await workload.progress(60);
    const gone = group.names.filter((name) => name !== "master-2");
    // No client of the workload writes this one; its change may still be committed.
    const settings = "/api/v1/cluster/settings/overcommit_ratio";
    for (const name of gone) await group.end(name, "SIGKILL");
    const startedMs = performance.now();
    const answers = await Promise.all([
      group.request("master-2", "PUT", settings, { value: 2 }),
      group.request("master-2", "GET", `${settings}?consistency=strong`),
      group.request("master-2", "GET", "/api/v1/cluster/status?consistency=strong"),
    ]);
    for (const refused of answers) {
      expect(refused.status).toBe(503);
      const { code } = (await refused.json()) as { code: string };
      expect(["unavailable", "outcome_unknown"]).toContain(code);
    }
    // The limit is 10 s; the rest allows for a loaded machine.
    expect(performance.now() - startedMs).toBeLessThan(100_000);
    const stale = await group.request("master-2", "GET", settings);
    expect(stale.status).toBe(200);
    expect(stale.headers.get("x-consistency")).toBe("stale");
    expect(stale.headers.get("x-may-be-stale")).toBe("true");
    expect(Number(stale.headers.get("x-raft-index"))).toBeGreaterThan(1);
    for (const name of gone) await group.start(name);
    await workload.progress(100);
    await run.finish();
  });
});
