// holds: masters-membership

import { eventually } from "@heddle/base/testing/eventually";
import { afterEach, describe, expect, it } from "vitest";
import { FAULT_TIMEOUT_MS, type FaultRun, startFaultRun } from "../../../test/faults/fault-run.ts";

// Masters that join and leave a group under load.

const REMOVED_EXIT_CODE = 8;

let run: FaultRun | undefined;
afterEach(async () => {
  await run?.close();
  run = undefined;
});

async function join({ group }: FaultRun, name: string): Promise<void> {
  await group.start(name);
  const leader = await group.leader();
  await eventually(async () => {
    const { masters } = await group.status(leader);
    return masters.some(({ id, role }) => id === name && role !== "learner");
  }, `${name} votes`);
}

/** Repeats the request for the removal until it is answered: the leader may change meanwhile. */
async function askForRemoval({ group }: FaultRun, name: string, through: string): Promise<void> {
  let reported = "";
  await eventually(async () => {
    const to = group.url(through) ? through : (group.runningNames[0] as string);
    const reply = await group.request(to, "DELETE", `/api/v1/cluster/masters/${name}`);
    const isFirst = reported === "";
    reported = `${reply.status} ${await reply.text()}`;
    // An attempt with unknown outcome may have succeeded.
    if (reply.status === 200 || (!isFirst && reply.status === 404)) return true;
    expect([408, 503], reported).toContain(reply.status);
    return false;
  }, `the removal of ${name} is answered`);
}

/** Removes a master through another one, and waits until it has exited. */
async function remove(of: FaultRun, name: string, through: string): Promise<void> {
  const { group } = of;
  const ended = group.ending(name);
  await askForRemoval(of, name, through);
  await eventually(async () => group.url(name) === undefined, `${name} has ended`).catch(
    async (error: Error) => {
      const status = JSON.stringify(await group.status(name).catch(String));
      const last = group.printed(name).slice(-2_000);
      throw new Error(`${error.message}: it says ${status}, and printed ${last}`);
    },
  );
  const { code, output } = await ended;
  expect(code).toBe(REMOVED_EXIT_CODE);
  expect(output).toMatch(/"msg":"This master was removed from the group and ends\./);
}

describe("group of masters", { timeout: FAULT_TIMEOUT_MS }, () => {
  it("grows from 1 to 5 and shrinks to 1 under load; removed masters exit", async () => {
    run = await startFaultRun({ title: "membership", masters: 1 });
    const { group, workload, pick } = run;
    await workload.progress(50);
    for (const pair of [
      ["master-2", "master-3"],
      ["master-4", "master-5"],
    ]) {
      const joining = run;
      await Promise.all(pair.map((name) => join(joining, name)));
    }
    await workload.progress(50);
    while (group.runningNames.length > 1) {
      const leader = await group.leader();
      // Every other time the leader itself, which must hand over its leadership.
      const others = group.runningNames.filter((name) => name !== leader);
      const isLeader = group.runningNames.length % 2 === 1;
      const name = isLeader ? leader : pick(others);
      await remove(run, name, isLeader ? leader : pick(group.runningNames));
      await workload.progress(20);
    }
    const [last] = group.runningNames as [string];
    expect((await group.status(last)).masters.map(({ id }) => id)).toEqual([last]);
    await run.finish();
  });

  it("a master removed while it was down exits, however old its log", async () => {
    run = await startFaultRun({ title: "removed while down", clients: 2 });
    const { group, workload } = run;
    const leader = await group.leader();
    const [gone, other] = group.names.filter((name) => name !== leader) as [string, string];
    await group.end(gone, "SIGKILL");
    await workload.progress(20);
    await askForRemoval(run, gone, other);
    await group.start(gone).catch(() => undefined);
    const { code, output } = await group.ending(gone);
    expect(code).toBe(REMOVED_EXIT_CODE);
    expect(output).toContain("was removed from the group");
    // Without its data it joins again under another id.
    group.wipe(gone);
    await join(run, gone);
    await run.finish();
  });
});
