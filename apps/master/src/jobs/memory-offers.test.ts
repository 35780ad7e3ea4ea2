import { clusterResourcesReply } from "@heddle/contracts/cluster";
import { nodeOffer } from "@heddle/control/jobs/testing/specs";
import { afterEach, beforeEach, expect, test } from "vitest";
import { replicaOn } from "../../test/fixtures.ts";
import { eventually } from "../../test/http.ts";
import { JobApi } from "../../test/job-api.ts";
import type { NodeView } from "../ports.ts";

const MIB = 2 ** 20;
/** Less the reserve of a sixteenth this leaves 15 GiB. */
const MEMORY_BYTES = 16_384 * MIB;
const USABLE_MIB = 15_360;

let api: JobApi;
beforeEach(async () => {
  api = await JobApi.start();
});
afterEach(() => api.close());

/** A worker that is always heard, with one replica that has so much memory. */
function worker(id: string, replicaMib: number, hostId: string | undefined = "h"): NodeView {
  const node = replicaOn(id, "tiny", "ready");
  const { labels, taints, rack, fabric, executors, incarnation } = nodeOffer(id);
  const told = { labels, taints, rack, fabric, executors, incarnation };
  return {
    ...{ ...node, hostId, memoryBytes: MEMORY_BYTES, lastSeenMs: Date.now() + 3_600_000 },
    replicas: node.replicas.map((replica) => {
      return { ...replica, load: { ...replica.load, residentBytes: replicaMib * MIB } };
    }),
    offer: {
      ...{ ...told, algorithms: [], environments: [], algorithmSchemas: {} },
      ...{ localSsdBytes: 0, ioOperationsPerSec: 0, networkMbps: 0 },
    },
  };
}

function offers(): Record<string, number> {
  const { nodes } = api.master.control.state;
  return Object.fromEntries([...nodes].map(([id, { offer }]) => [id, offer.memoryMib]));
}

async function offersBecome(views: readonly NodeView[], expected: Record<string, number>) {
  api.master.directory.views = [...views];
  const text = JSON.stringify(expected);
  await eventually(() => JSON.stringify(offers()) === text, 5_000).catch(() => {});
  expect(offers()).toEqual(expected);
}

const asks = (mib: number) => ({
  tasks: 1,
  resources: { gpu_count: 0, cpu_cores: 0.1, memory_gb: (mib * MIB) / 1e9 },
});

async function verdict(mib: number): Promise<unknown> {
  const { body } = await api.call("POST", "/jobs?dry_run=true", {
    ...{ name: "n", command: "true", ...asks(mib) },
  });
  return (body as { readonly verdict?: unknown }).verdict;
}

async function resources() {
  const { body } = await api.call("GET", "/cluster/resources");
  return clusterResourcesReply.parse(body);
}

test("one worker: jobs get the memory less the reserve and what replicas hold", async () => {
  await offersBecome([worker("a", 0)], { a: USABLE_MIB });
  expect(await verdict(USABLE_MIB)).toBe("would_start");
  expect(await verdict(USABLE_MIB + 1)).toBe("unsatisfiable");
  await offersBecome([worker("a", 2_048)], { a: USABLE_MIB - 2_048 });
  expect(await verdict(USABLE_MIB - 2_048)).toBe("would_start");
  expect(await verdict(USABLE_MIB - 2_047)).toBe("unsatisfiable");
  const { totals } = await resources();
  expect(totals.memory_bytes).toMatchObject({
    ...{ offered: MEMORY_BYTES, in_use: 2_048 * MIB, available: (USABLE_MIB - 2_048) * MIB },
  });
});

test("one worker: the offer follows replicas in steps, and rises when they are gone", async () => {
  await offersBecome([worker("a", 2_048)], { a: USABLE_MIB - 2_048 });
  await offersBecome([worker("a", 2_049)], { a: USABLE_MIB - 2_304 });
  const index = api.master.control.appliedIndex;
  api.master.directory.views = [worker("a", 2_047)];
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  expect(api.master.control.appliedIndex).toBe(index);
  await offersBecome([worker("a", 0)], { a: USABLE_MIB });
});

test("two workers of one machine: they divide its memory, others do not", async () => {
  const views = [worker("a", 0), worker("b", 2_048), worker("c", 0, "other"), worker("d", 0, "")];
  const half = (USABLE_MIB - 2_048) / 2;
  await offersBecome(views, { a: half, b: half, c: USABLE_MIB, d: USABLE_MIB });
  const { totals } = await resources();
  expect(totals.memory_bytes).toMatchObject({
    ...{ offered: 3 * MEMORY_BYTES, available: (3 * USABLE_MIB - 2_048) * MIB },
  });
});

test("a second worker of a machine: it offers no memory that tasks of the first hold", async () => {
  await offersBecome([worker("a", 0)], { a: USABLE_MIB });
  const id = await api.submit(asks(12_288));
  await api.run(id);
  const views = [worker("a", 0), worker("b", 0)];
  await offersBecome(views, { a: 12_288, b: USABLE_MIB - 12_288 });
  expect(await verdict(USABLE_MIB - 12_288)).toBe("would_start");
  expect(await verdict(USABLE_MIB - 12_287)).not.toBe("would_start");
  await api.report(id, "exited", { exitCode: 0 } as never);
  await offersBecome(views, { a: USABLE_MIB / 2, b: USABLE_MIB / 2 });
});

test("a silent worker of a machine: once it is lost, only its tasks keep memory", async () => {
  await offersBecome([worker("b", 0)], { b: USABLE_MIB });
  await api.run(await api.submit(asks(4_096)));
  const views = [worker("a", 0), worker("b", 0)];
  await offersBecome(views, { b: USABLE_MIB / 2, a: USABLE_MIB / 2 });
  api.master.directory.views = [worker("a", 0)];
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  expect(offers()["a"]).toBe(USABLE_MIB / 2);
  const fencedAtMs = Date.now() + 3_600_000;
  await api.propose({ type: "node.lost", nodeIds: ["b"], fencedAtMs });
  await offersBecome([worker("a", 0)], { b: USABLE_MIB / 2, a: USABLE_MIB - 4_096 });
});
