// holds: state-rolling-upgrade

import { eventually } from "@heddle/base/testing/eventually";
import { NEWEST_VERSION } from "@heddle/control/cluster-version";
import { afterAll, beforeAll, expect, it } from "vitest";
import { FAULT_TIMEOUT_MS, type FaultRun, startFaultRun } from "../../../test/faults/fault-run.ts";

// Three masters as processes whose cluster version an upgrade raises. This build runs in place of
// the older one, limited to the previous version: so this tests that version's rules as this build
// has them.

const OLD = NEWEST_VERSION - 1;
const NEW = NEWEST_VERSION;

const newestOf = new Map<string, number>();
let run: FaultRun;

beforeAll(async () => {
  const newest = (name: string) => String(newestOf.get(name) ?? OLD);
  const place = (name: string) => ({ env: { HEDDLE_TEST_NEWEST_VERSION: newest(name) } });
  run = await startFaultRun({ title: "rolling upgrade", place });
}, FAULT_TIMEOUT_MS);
afterAll(() => run?.close());

async function versions(): Promise<number[]> {
  const { group } = run;
  const statuses = await Promise.all(group.runningNames.map((name) => group.status(name)));
  return statuses.map((status) => status.cluster_version);
}

async function restart(name: string, newest: number): Promise<void> {
  await run.group.end(name, "SIGTERM");
  newestOf.set(name, newest);
  await run.group.start(name);
}

it("rolling upgrade: loses no change, and raises the version at its end", {
  timeout: FAULT_TIMEOUT_MS,
}, async () => {
  const { group, workload } = run;
  await workload.progress(60);
  const leader = await group.leader();
  const order = [...group.names.filter((name) => name !== leader), leader];
  for (const name of order) {
    expect(await versions()).toEqual([OLD, OLD, OLD]);
    await restart(name, NEW);
    await workload.progress(60);
  }
  await eventually(
    async () => (await versions()).every((version) => version === NEW),
    "all masters have the new version",
  );
  await workload.progress(60);
  await run.finish();
});

it("old master: refused, with its data and without", {
  timeout: FAULT_TIMEOUT_MS,
}, async () => {
  const { group } = run;
  const [name = ""] = group.names;
  const refused = /could not start: .*cluster version.* Start .* with the build that the other/;
  await expect(restart(name, OLD)).rejects.toThrow(refused);
  group.wipe(name);
  await expect(restart(name, OLD)).rejects.toThrow(refused);
  await restart(name, NEW);
  await eventually(
    async () => (await versions()).every((version) => version === NEW),
    "it has taken over the version",
  );
});
