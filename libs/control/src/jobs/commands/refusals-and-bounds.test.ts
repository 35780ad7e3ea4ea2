import { expect, test } from "vitest";
import { refuse } from "../../command.ts";
import { PlannedCluster } from "../testing/planned-cluster.ts";
import { jobId } from "../testing/specs.ts";

test("queues: a thousand at most; an existing one can be changed", () => {
  const cluster = new PlannedCluster();
  const set = (name: string, maxLength?: number) =>
    cluster.do({ type: "queue.set", queue: { name, strategy: "binpack", maxLength } });
  for (let n = 0; n < 1_000; n++) expect(set(`q${n}`)).toEqual({ ok: true });
  expect(set("one-more")).toMatchObject({ ok: false, code: "conflict" });
  expect(set("q7", 3)).toEqual({ ok: true });
  expect(cluster.control.state.queues.get("q7")).toMatchObject({ maxLength: 3 });
});

test("refusal: it has a parameter only where one is named", () => {
  expect(refuse("conflict", "no")).toStrictEqual({ ok: false, code: "conflict", message: "no" });
  expect(refuse("conflict", "no", "id")).toMatchObject({ param: "id" });
});

test("devices: events report a fault and its end", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 2 });
  const said = () =>
    [...cluster.control.state.events.values()].flatMap(({ what }) =>
      what.type === "node" && what.why !== undefined ? [what.why] : [],
    );
  const quarantine = (device: number, why?: string) =>
    cluster.do({ type: "node.quarantine", nodeId: "a", device, why });
  for (const _ of [1, 2]) quarantine(1, "Xid 79");
  expect(said()).toEqual(["device 1: Xid 79"]);
  for (const _ of [1, 2]) quarantine(1);
  expect(said()).toEqual(["device 1: Xid 79", "device 1 is healthy again"]);
  expect(quarantine(2, "Xid 79")).toMatchObject({ ok: false, code: "invalid_value" });
  expect(quarantine(-1, "Xid 79")).toMatchObject({ ok: false, code: "invalid_value" });
  expect(cluster.control.state.nodes.get("a")?.quarantined).toEqual([]);
});

test("requests: `ifIndex` must be the job's latest index", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1);
  const { changedIndex } = cluster.job(1);
  const cancel = (ifIndex: number) =>
    cluster.do({ type: "job.request", jobId: jobId(1), request: "cancel", ifIndex });
  for (const other of [changedIndex - 1, changedIndex + 1]) {
    expect(cancel(other)).toMatchObject({ ok: false, code: "precondition_failed" });
  }
  expect(cancel(changedIndex)).toEqual({ ok: true });
});
