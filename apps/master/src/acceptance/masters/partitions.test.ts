// holds: masters-partition

import { eventually } from "@heddle/base/testing/eventually";
import { afterAll, afterEach, beforeAll, describe, it } from "vitest";
import { FAULT_TIMEOUT_MS, type FaultRun, startFaultRun } from "../../../test/faults/fault-run.ts";
import { HostNetwork, whyNoNetworks } from "../../../test/faults/network.ts";

// Three masters, each in its own network namespace; clients always reach all of them. Packets
// between masters are dropped silently, as by a broken switch.

const skipped = whyNoNetworks();
if (skipped) process.stdout.write(`partitions of networks: skipped, ${skipped}\n`);
const NAMES = ["master-1", "master-2", "master-3"];

let network: HostNetwork;
let run: FaultRun | undefined;
beforeAll(() => {
  if (!skipped) network = new HostNetwork(NAMES);
});
/** After a failed test the next one gets new masters. */
afterEach(async ({ task }) => {
  if (task.result?.state === "pass") return;
  network?.heal();
  await run?.close();
  run = undefined;
});
afterAll(async () => {
  await run?.close();
  network?.close();
});

/** Reuses the masters of the previous test, if any. */
async function begin(title: string): Promise<FaultRun> {
  const place = (name: string) => ({ wrap: network.wrap(name), host: network.address(name) });
  await run?.resume(title);
  run ??= await startFaultRun({ title, place });
  return run;
}

/** The leader and the two others. */
async function roles({ group }: FaultRun): Promise<[string, string, string]> {
  const leader = await group.leader();
  return [leader, ...group.names.filter((name) => name !== leader)] as [string, string, string];
}

describe.skipIf(skipped)("linearizable histories", { timeout: FAULT_TIMEOUT_MS }, () => {
  it("isolated leader: it steps down, the others continue, and it recovers", async () => {
    const run = await begin("symmetric partition");
    const { group, workload } = run;
    for (const _ of run.rounds(1)) {
      await workload.progress(60);
      const [leader, ...others] = await roles(run);
      for (const other of others) {
        network.cut(leader, other);
        network.cut(other, leader);
      }
      await eventually(
        async () => others.includes(await group.leader(others).catch(() => "")),
        "the others have a leader of their own",
      );
      await workload.progress(15);
      await eventually(async () => {
        const stale = await group.request(leader, "GET", "/api/v1/cluster/settings");
        return stale.headers.get("x-may-be-stale") === "true";
      }, "the one that is cut off has stepped down and says so");
      network.heal();
      await group.leader();
    }
    await workload.progress(50);
    await run.finish();
  });

  it("one-way packet loss: to the leader, from it, and between followers", async () => {
    const run = await begin("asymmetric partitions");
    const { workload } = run;
    const kinds = ["from", "to", "between"];
    for (const round of run.rounds(3)) {
      await workload.progress(30);
      const [leader, one, two] = await roles(run);
      const kind = kinds[round % kinds.length];
      if (kind === "from") for (const other of [one, two]) network.cut(leader, other);
      else if (kind === "to") for (const other of [one, two]) network.cut(other, leader);
      else network.cut(one, two);
      await workload.progress(15);
      network.heal();
    }
    await run.group.leader();
    await workload.progress(50);
    await run.finish();
  });
});
