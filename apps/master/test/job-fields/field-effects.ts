import type { LeaseTask } from "@heddle/contracts/generated/heddle/v1/LeaseTask";
import { taskKey } from "@heddle/control/jobs/records/records";
import { expect } from "vitest";
import { commandForTask } from "../../src/orchestration/tasks/task-orders.ts";
import { JobApi } from "../job-api.ts";
import { SECRETS } from "../test-master.ts";

/** A field of the job spec under test. */
export interface FieldCase {
  /** An invalid value. */
  readonly refused: unknown;
  readonly effect: (path: string) => Promise<void>;
}

/** Set by `startFieldApi`. */
export let api: JobApi;
let count = 0;

/** A master with three nodes, on which fields have different effects. */
export async function startFieldApi(): Promise<void> {
  api = await JobApi.start();
  await api.join("plain", {
    cpuMilli: 4_000,
    memoryMib: 4_096,
    localSsdGb: 10,
    gpuType: "A100",
    gpuMemoryGb: 40,
    gpuCount: 1,
    rack: "r1",
    labels: { zone: "b" },
  });
  await api.join("rich", {
    ioOperationsPerSec: 1_000_000,
    networkMbps: 100_000,
    fabric: "ib0",
    rack: "r2",
    labels: { zone: "a", "heddle/profile-reader": "true", "heddle/feature-inputs": "true" },
    executors: ["process", "container", "training"],
  });
  await api.join("special", { gpuCount: 0, taints: ["special"], labels: { kind: "special" } });
  await api.propose({ type: "setting.put", name: "shared_storage_gb", value: 100 });
}

const SMALL = { cpu_cores: 0.1, memory_gb: 0.1 };

/** `{a: {b: value}}` of `a.b`. */
export function nested(path: string, value: unknown): Record<string, unknown> {
  const [first = "", ...rest] = path.split(".");
  return { [first]: rest.length === 0 ? value : nested(rest.join("."), value) };
}

export function specWith(change: Record<string, unknown>): Record<string, unknown> {
  count += 1;
  const { resources, ...others } = change as { resources?: Record<string, unknown> };
  const body = { name: `n${count}`, command: "true", ...others };
  return { ...body, resources: { ...SMALL, ...resources } };
}

interface Dry {
  readonly verdict: string;
  readonly placement: readonly { readonly node: string }[];
  readonly never_fits: readonly {
    readonly resource: string;
    readonly reason: string;
    readonly message: string;
  }[];
  readonly explanation: { readonly blockers: readonly { readonly resource: string }[] };
}

export async function dryRunOf(change: Record<string, unknown>): Promise<Dry> {
  const { status, body } = await api.call("POST", "/jobs?dry_run=true", specWith(change));
  expect(status, JSON.stringify(body)).toBe(200);
  return body as unknown as Dry;
}

/** A resource: one value fits only the larger node, another fits none. */
export function places(
  fits: unknown,
  never: unknown,
  expected: string,
  { node = "rich", ...others }: Record<string, unknown> = {},
): FieldCase["effect"] {
  return async (path) => {
    const field = path.replace("resources.", "");
    const placed = await dryRunOf({ resources: { ...others, [field]: fits } });
    expect(placed).toMatchObject({ verdict: "would_start", placement: [{ node }] });
    const refused = await dryRunOf({ resources: { ...others, [field]: never } });
    expect(refused.verdict).toBe("unsatisfiable");
    const words = refused.never_fits.map(({ reason, resource }) => `${reason} ${resource}`);
    expect(words.join("; ")).toContain(expected);
  };
}

/** The lease of this spec's task, as sent to a worker. */
export async function lease(
  change: Record<string, unknown>,
): Promise<NonNullable<LeaseTask["spec"]>> {
  const id = await api.submit(specWith(change));
  await api.reached(id, "scheduled");
  const { state } = api.master.control;
  const order = commandForTask(
    state,
    state.tasks.get(taskKey(id, 1, 0))!,
    undefined,
    Date.now(),
    SECRETS,
  );
  await api.call("DELETE", `/jobs/${id}`);
  await over(id);
  return order?.lease?.spec ?? {};
}

/** Resolves when the job holds no place. */
export async function over(id: string): Promise<void> {
  await api.report(id, "exited", { endedAtMs: Date.now() });
}

/** The field changes this part of the worker's lease. */
export function leases(
  value: unknown,
  expected: NonNullable<LeaseTask["spec"]>,
): FieldCase["effect"] {
  return async (path) => {
    const [key = ""] = Object.keys(expected);
    expect(await lease(nested(path, value))).toMatchObject(expected);
    const without = (await lease({})) as Record<string, unknown>;
    expect(without[key]).not.toEqual((expected as Record<string, unknown>)[key]);
  };
}

/** The filter finds the job by the field's value, and not by another. */
export function filters(value: unknown, query: string, other: string): FieldCase["effect"] {
  return async (path) => {
    const id = await api.submit(specWith(nested(path, value)));
    const found = async (text: string) => {
      const { body } = await api.call("GET", `/jobs?${text}`);
      return (body?.data ?? []).map((job) => (job as unknown as { id: string }).id);
    };
    expect(await found(query)).toContain(id);
    expect(await found(other)).not.toContain(id);
    await api.call("DELETE", `/jobs/${id}`);
    await over(id);
  };
}

/**
 * A job that takes all of the larger node runs, and another wants it. Returns the first one's
 * state.
 */
export async function contest(
  first: Record<string, unknown>,
  second: Record<string, unknown>,
): Promise<string | undefined> {
  const gpus = { gpu_count: 4, gpu_type: "H100" };
  const holder = await api.submit(specWith({ tasks: 1, resources: { ...gpus, ...first } }));
  await api.run(holder);
  const comer = await api.submit(specWith({ tasks: 1, resources: { ...gpus, ...second } }));
  await api.reached(comer, "pending");
  const { body } = await api.call("GET", `/jobs/${comer}`);
  expect(body?.explanation?.blockers).not.toEqual([]);
  const state = api.master.control.state.jobs.get(holder)?.state;
  for (const id of [comer, holder]) {
    await api.call("DELETE", `/jobs/${id}`);
    await over(id);
  }
  return state;
}

export const EVICTED = "checkpointing";

/** A gang over two nodes runs, and one of the nodes is lost. */
export async function loseOneOfTwo(tolerance: number): Promise<string | undefined> {
  const pair = `p${tolerance}`;
  const nodes = [`${pair}-1`, `${pair}-2`];
  const offer = { gpuCount: 0, cpuMilli: 100, memoryMib: 200, labels: { pair } };
  for (const id of nodes) await api.join(id, offer);
  const body = { tasks: 2, failure_tolerance: tolerance };
  const resources = { cpu_cores: 0.2, node_affinity: { pair } };
  const id = await api.submit(specWith({ ...body, resources }));
  await api.run(id);
  const lost = { nodeIds: nodes.slice(0, 1), fencedAtMs: Date.now() + 3_600_000 };
  await api.propose({ type: "node.lost", ...lost });
  const state = api.master.control.state.jobs.get(id)?.state;
  await api.call("DELETE", `/jobs/${id}`);
  await over(id);
  return state;
}
