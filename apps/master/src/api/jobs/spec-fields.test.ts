// holds: jobs-pointers, jobs-fields, jobs-ids, jobs-dependencies, life-tolerance, sched-priorities
// holds: sched-strategies

import { eventually } from "@heddle/base/testing/eventually";
import { submitJobRequest } from "@heddle/contracts/api/job-spec";
import { NEWEST_VERSION, RUNS_BLOCKS, TAKES_INPUTS } from "@heddle/control/cluster-version";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  api,
  contest,
  dryRunOf,
  EVICTED,
  type FieldCase,
  filters,
  lease,
  leases,
  loseOneOfTwo,
  nested,
  over,
  places,
  specWith,
  startFieldApi,
} from "../../../test/job-fields/field-effects.ts";

// Checks every field of the contract's job spec: an invalid value is refused with a pointer, and a
// valid one has an effect. The workers' side of a lease is checked by `apps/worker/src/tasks` and
// `task-fields.test.ts`.

beforeAll(startFieldApi);
afterAll(() => api.close());

const FIELDS: Readonly<Record<string, FieldCase>> = {
  id: {
    refused: "job_1",
    effect: async () => {
      const id = "job_01M7ZHA0THCABZQ4XCV62DZD3F";
      const { body } = await api.call("POST", "/jobs", specWith({ id }));
      expect(body?.job_id).toBe(id);
      expect((await api.call("POST", "/jobs", specWith({ id }))).status).toBe(409);
      await api.call("DELETE", `/jobs/${id}`);
      await over(id);
    },
  },
  name: { refused: "", effect: filters("one-name", "name=one-name", "name=another") },
  project: { refused: "No Project", effect: filters("lab", "project=lab", "project=default") },
  queue: {
    refused: "no queue",
    effect: async (path) => {
      await api.call("PUT", "/queues/night", { max_length: 1 });
      await filters("night", "queue=night", "queue=default")(path);
      const first = await api.submit(specWith({ queue: "night" }));
      expect((await api.call("POST", "/jobs", specWith({ queue: "night" }))).status).toBe(429);
      await api.call("DELETE", `/jobs/${first}`);
      await over(first);
      expect(await lease({ queue: "night" })).toMatchObject({ queue: "night" });
    },
  },
  labels: { refused: { a: 1 }, effect: filters({ team: "x" }, "label=team=x", "label=team=y") },
  algorithm: { refused: "P P O", effect: leases("ppo", { algorithm: "ppo" }) },
  config: {
    refused: [],
    effect: async () => {
      const spec = await lease({ algorithm: "ppo", config: { learning_rate: 0.1 } });
      expect(JSON.parse(spec.config ?? "")).toMatchObject({ learning_rate: 0.1 });
    },
  },
  container_image: {
    refused: "",
    effect: async () => {
      const image = { container_image: "alpine:3" };
      expect((await dryRunOf(image)).placement).toMatchObject([{ node: "rich" }]);
      const spec = await lease(image);
      expect(spec).toMatchObject({ executor: "container", containerImage: "alpine:3" });
      const elsewhere = { resources: { node_affinity: { zone: "b" } } };
      expect((await dryRunOf({ ...image, ...elsewhere })).verdict).toBe("unsatisfiable");
    },
  },
  "container_options.network": {
    refused: "bridge",
    effect: async () => {
      const image = { container_image: "alpine:3" };
      const spec = await lease({ ...image, container_options: { network: "host" } });
      expect(spec).toMatchObject({ hostNetwork: true });
      expect(await lease(image)).toMatchObject({ hostNetwork: false });
    },
  },
  "container_options.shm_gb": {
    refused: 0,
    effect: async () => {
      const image = { container_image: "alpine:3" };
      const spec = await lease({ ...image, container_options: { shm_gb: 0.5 } });
      expect(spec).toMatchObject({ shmBytes: 5e8 });
      expect(await lease(image)).toMatchObject({ shmBytes: 0 });
    },
  },
  "container_options.profile": {
    refused: "Not A Name",
    effect: async () => {
      const image = { container_image: "alpine:3" };
      const options = { container_options: { profile: "reader" } };
      expect((await dryRunOf({ ...image, ...options })).placement).toMatchObject([
        { node: "rich" },
      ]);
      expect(await lease({ ...image, ...options })).toMatchObject({ profile: "reader" });
      const other = { container_options: { profile: "writer" } };
      expect((await dryRunOf({ ...image, ...other })).verdict).toBe("unsatisfiable");
    },
  },
  "container_options.read_only": {
    refused: "yes",
    effect: async () => {
      const image = { container_image: "alpine:3" };
      const spec = await lease({ ...image, container_options: { read_only: true } });
      expect(spec).toMatchObject({ readOnly: true });
      expect(await lease(image)).toMatchObject({ readOnly: false });
    },
  },
  command: {
    refused: [],
    effect: async () => {
      expect(await lease({ command: ["a", "b c"] })).toMatchObject({ command: ["a", "b c"] });
      expect((await lease({ command: "a b" })).command).toEqual(["/bin/sh", "-c", "a b"]);
    },
  },
  working_directory: { refused: "", effect: leases("/data", { workingDirectory: "/data" }) },
  environment_variables: {
    refused: { "1A": "x" },
    effect: leases({ A: "b" }, { environment: { A: "b" } }),
  },
  secret_variables: {
    refused: { A: "no-such-secret" },
    effect: async () => {
      const secret = { project: "default", name: "token" };
      const [key, sealed] = ["00112233aabbccdd", "c2VhbGVk"];
      api.master.control.useSecretsKey(key);
      await api.propose({ type: "secret.set", ...secret, key, sealed });
      const id = await api.submit(specWith({ secret_variables: { A: "token" } }));
      const remove = () => api.propose({ type: "secret.remove", ...secret });
      expect(await remove()).toMatchObject({ ok: false, code: "conflict" });
      await api.call("DELETE", `/jobs/${id}`);
      await over(id);
      await eventually(async () => (await remove()).ok, "the job needs it no more");
    },
  },
  inputs: {
    refused: [{ name: "data", source: "file:///etc/passwd", sha256: "0".repeat(64) }],
    effect: async () => {
      const source = "https://example.com/data";
      const input = { name: "data", source, sha256: "0".repeat(64) };
      expect(await lease({ inputs: [input] })).toMatchObject({ inputs: [input] });
      const first = specWith({});
      const job = await api.submit(first);
      const next = await api.submit(
        specWith({ inputs: [{ name: "data", job, artifact: "file" }] }),
      );
      await api.reached(next, "pending");
      const { body } = await api.call("GET", `/jobs/${next}`);
      expect(body?.explanation?.blockers).toMatchObject([
        { reason: "DependencyWait", jobs: [job] },
      ]);
      for (const id of [next, job]) await api.call("DELETE", `/jobs/${id}`);
      await over(job);
    },
  },
  when: {
    refused: [{ input: "no such input", equals: 1 }],
    effect: async () => {
      const inputs = [{ name: "data", source: "https://example.com/data", sha256: "0".repeat(64) }];
      const when = [{ input: "data", at_least: 1 }];
      expect(await lease({ inputs, when })).toMatchObject({ when: JSON.stringify(when) });
    },
  },
  dependencies: {
    refused: ["no such job"],
    effect: async () => {
      const first = specWith({});
      const id = await api.submit(first);
      await api.run(id);
      const next = await api.submit(specWith({ dependencies: [first["name"]] }));
      await api.reached(next, "pending");
      const { body } = await api.call("GET", `/jobs/${next}`);
      expect(body?.explanation?.blockers).toMatchObject([
        {
          reason: "DependencyWait",
          jobs: [id],
          message: `DependencyWait: waits for ${id} to succeed`,
        },
      ]);
      await over(id);
      await api.reached(next, "scheduled");
      await api.call("DELETE", `/jobs/${next}`);
      await over(next);
    },
  },
  tasks: {
    refused: 0,
    effect: async () => {
      expect((await dryRunOf({ tasks: 3 })).placement).toHaveLength(3);
      expect((await lease({ tasks: 3 })).tasks).toBe(3);
    },
  },
  "resources.gpu_count": { refused: -1, effect: places(4, 99, "InsufficientGpu") },
  "resources.cpu_cores": { refused: 0, effect: places(32, 1_000, "cpu_cores") },
  "resources.memory_gb": { refused: 0, effect: places(32, 100_000, "memory_gb") },
  "resources.gpu_type": {
    refused: [],
    effect: places("H100", "B300", "gpu_type", { gpu_count: 1 }),
  },
  "resources.gpu_memory_gb": {
    refused: 0,
    effect: places(60, 500, "gpu_memory", { gpu_count: 1 }),
  },
  "resources.local_ssd_gb": { refused: 0, effect: places(500, 100_000, "local_ssd_gb") },
  "resources.shared_storage_gb": {
    refused: 0,
    effect: async (path) => {
      await places(100, 101, "shared_storage_gb", { node_affinity: { zone: "a" } })(path);
      const id = await api.submit(specWith({ resources: { shared_storage_gb: 60 } }));
      await api.run(id);
      const second = await dryRunOf({ resources: { shared_storage_gb: 60 } });
      expect(second.verdict).toBe("would_wait");
      expect(second.explanation.blockers).toContainEqual(
        expect.objectContaining({ resource: "shared_storage_gb", free: 40, limit: 100 }),
      );
      await api.call("DELETE", `/jobs/${id}`);
      await over(id);
    },
  },
  "resources.io_operations_per_sec": {
    refused: 0,
    effect: places(500_000, 5_000_000, "io_operations_per_sec"),
  },
  "resources.network_bandwidth_gbps": {
    refused: 0,
    effect: places(50, 500, "network_bandwidth_gbps"),
  },
  "resources.infiniband_required": {
    refused: "yes",
    effect: async () => {
      const wanted = { infiniband_required: true };
      const placed = await dryRunOf({ resources: wanted });
      expect(placed).toMatchObject({ verdict: "would_start", placement: [{ node: "rich" }] });
      const without = { ...wanted, node_affinity: { zone: "b" } };
      expect((await dryRunOf({ resources: without })).verdict).toBe("unsatisfiable");
    },
  },
  "resources.node_affinity": {
    refused: [{ key: "zone", operator: "like" }],
    effect: places({ zone: "a" }, [{ key: "none", operator: "exists" }], "AffinityNoMatch"),
  },
  "resources.node_anti_affinity": {
    refused: "zone",
    effect: places({ zone: "a" }, [{ key: "none", operator: "not_exists" }], "AffinityNoMatch", {
      node: "plain",
    }),
  },
  "resources.tolerations": {
    refused: "special",
    effect: places(["special"], ["other"], "AffinityNoMatch", {
      node: "special",
      node_affinity: { kind: "special" },
    }),
  },
  "resources.same_rack": {
    refused: 1,
    effect: async () => {
      const gang = { tasks: 5, resources: { gpu_count: 5 } };
      expect((await dryRunOf(gang)).placement).toHaveLength(5);
      const together = await dryRunOf({ ...gang, resources: { gpu_count: 5, same_rack: true } });
      expect(together.verdict).toBe("unsatisfiable");
      expect(together.never_fits[0]?.reason).toBe("TopologyUnavailable");
    },
  },
  "resources.qos_level": {
    refused: "gold",
    effect: async () => {
      const [low, high] = [{ qos_level: "best_effort" }, { qos_level: "guaranteed" }];
      expect(await contest(low, high)).toBe(EVICTED);
      expect(await contest(high, low)).toBe("running");
    },
  },
  "resources.priority": {
    refused: 1_001,
    effect: async () => {
      expect(await contest({ priority: 0 }, { priority: 1 })).toBe(EVICTED);
      expect(await contest({ priority: 1 }, { priority: 1 })).toBe("running");
    },
  },
  "resources.preemptible": {
    refused: "no",
    effect: async () => {
      const comer = { priority: 10 };
      expect(await contest({ preemptible: true }, comer)).toBe(EVICTED);
      expect(await contest({ preemptible: false }, comer)).toBe("running");
    },
  },
  "checkpoint_config.interval_seconds": {
    refused: 0,
    effect: leases(60, { checkpointIntervalMs: 60_000 }),
  },
  "checkpoint_config.grace_seconds": { refused: -1, effect: leases(5, { graceMs: 5_000 }) },
  "checkpoint_config.keep": { refused: 0, effect: leases(7, { keepCheckpoints: 7 }) },
  "checkpoint_config.signal": {
    refused: "SIGKILL",
    effect: leases("SIGUSR2", { checkpointSignal: "SIGUSR2" }),
  },
  "monitoring_config.hang_timeout_seconds": {
    refused: 0,
    effect: leases(30, { hangTimeoutMs: 30_000 }),
  },
  "monitoring_config.interval_seconds": {
    refused: 0,
    effect: leases(9, { progressIntervalMs: 9_000 }),
  },
  max_runtime_hours: { refused: 0, effect: leases(0.5, { maxRuntimeMs: 1_800_000 }) },
  retry_limit: {
    refused: -1,
    effect: async () => {
      const exit = { reason: "ExitCode" as const, exitCode: 1, endedAtMs: Date.now() };
      const failed = async (limit: number) => {
        const id = await api.submit(specWith({ retry_limit: limit }));
        await api.run(id);
        await api.report(id, "exited", exit);
        const state = api.master.control.state.jobs.get(id)?.state;
        await api.call("DELETE", `/jobs/${id}`);
        return state;
      };
      expect(await failed(0)).toBe("failed");
      expect(await failed(1)).toBe("pending");
    },
  },
  failure_tolerance: {
    refused: -1,
    effect: async () => {
      expect(await loseOneOfTwo(0)).toBe("retrying");
      expect(await loseOneOfTwo(1)).toBe("recovering");
    },
  },
};

/** The fields of the contract, with the members of groups. */
function contractFields(): string[] {
  return Object.entries(submitJobRequest.shape).flatMap(([name, schema]) => {
    const inner = "innerType" in schema.def ? schema.def.innerType : undefined;
    const isGroup = inner !== undefined && "shape" in inner;
    return isGroup ? Object.keys(inner.shape).map((member) => `${name}.${member}`) : [name];
  });
}

describe("job spec: every field", () => {
  it("has a case here, and each attribute of the platform is a field", () => {
    expect(Object.keys(FIELDS).sort()).toEqual(contractFields().sort());
    const resources = [
      "cpu_cores",
      "memory_gb",
      "gpu_count",
      "gpu_type",
      "gpu_memory_gb",
      "local_ssd_gb",
      "shared_storage_gb",
      "io_operations_per_sec",
      "network_bandwidth_gbps",
      "infiniband_required",
      "node_affinity",
      "node_anti_affinity",
      "qos_level",
      "priority",
      "preemptible",
    ].map((name) => `resources.${name}`);
    const attributes = [
      "name",
      "algorithm",
      "container_image",
      "command",
      "working_directory",
      "dependencies",
      "environment_variables",
      "max_runtime_hours",
      "retry_limit",
      "failure_tolerance",
    ];
    expect(Object.keys(FIELDS)).toEqual(expect.arrayContaining([...resources, ...attributes]));
    for (const group of ["checkpoint_config.", "monitoring_config."]) {
      expect(Object.keys(FIELDS).some((path) => path.startsWith(group))).toBe(true);
    }
  });

  it.each(Object.entries(FIELDS))(
    "%s is refused with a pointer at it",
    async (path, { refused }) => {
      const change = nested(path, refused);
      const { status, body } = await api.call("POST", "/jobs", { ...specWith({}), ...change });
      expect([400, 422]).toContain(status);
      const [pointer = ""] = (body?.errors ?? []).map((error) => error.pointer);
      expect(`${pointer}/`).toMatch(new RegExp(`^#/${path.replaceAll(".", "/")}/`));
    },
  );

  it.each(Object.entries(FIELDS))("%s does something", async (path, { effect }) => {
    await effect(path);
  });

  it("that is not in the contract is refused, at every depth", async () => {
    for (const path of ["a", "resources.a", "checkpoint_config.a", "monitoring_config.a"]) {
      const change = { ...specWith({}), ...nested(path, 1) };
      const { status, body } = await api.call("POST", "/jobs", change);
      expect(status, path).toBe(400);
      expect(body?.errors?.[0]?.pointer).toBe(`#/${path.replace(".", "/")}`);
    }
  });
});

// holds: pipelines-older
it("job spec: older workers and masters get no job with inputs", async () => {
  const input = { name: "data", source: "https://example.com/data", sha256: "0".repeat(64) };
  const older = { inputs: [input], resources: { node_affinity: { zone: "b" } } };
  const { verdict, never_fits: why } = await dryRunOf(older);
  expect(verdict).toBe("unsatisfiable");
  expect(why.map(({ message }) => message).join()).toMatch(/older build, which knows no `inputs`/);
  const { cluster } = api.master.control.state;
  const version = cluster.get("version") ?? NEWEST_VERSION;
  cluster.set("version", TAKES_INPUTS - 1);
  const refused = await api.call("POST", "/jobs", specWith({ inputs: [input] }));
  cluster.set("version", version);
  expect(refused.status).toBe(503);
  expect(JSON.stringify(refused.body)).toContain("when all of them run this build");
});

it("job spec: older masters get no job with a block, and a block is one task", async () => {
  const block = { ...specWith({}), command: undefined, algorithm: "text/count@1" };
  const several = await api.call("POST", "/jobs", { ...block, tasks: 2 });
  expect(several.status).toBe(422);
  expect(JSON.stringify(several.body)).toContain("a plugin's block is one task, got 2");
  const { cluster } = api.master.control.state;
  const version = cluster.get("version") ?? NEWEST_VERSION;
  cluster.set("version", RUNS_BLOCKS - 1);
  const refused = await api.call("POST", "/jobs", block);
  cluster.set("version", version);
  expect(refused.status).toBe(503);
  expect(JSON.stringify(refused.body)).toContain("when all of them run this build");
  const { verdict, never_fits: why } = await dryRunOf({
    command: undefined,
    algorithm: "text/count@1",
  });
  expect(verdict).toBe("unsatisfiable");
  expect(JSON.stringify(why)).toContain("block");
});
