// holds: kube-jobs, kube-views, kube-definitions, kube-settings, kube-namespace, kube-outage

import { randomBytes } from "node:crypto";
import { seededRandom } from "@heddle/base/random";
import type { Heddle } from "@heddle/client/heddle";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { DrivenProcess } from "../../apps/cli/src/testing/driven-process.ts";
import {
  crash,
  kubectl,
  OUTAGE_SECONDS,
  outage,
  untilFound,
  whyNoCluster,
} from "./kube-cluster.ts";
import { LocalHeddle } from "./testing/local-heddle.ts";

const why = whyNoCluster();
if (why !== undefined) console.log(`tests of the operator are skipped: ${why}`);

const namespace = `operator-${randomBytes(4).toString("hex")}`;
/** Another one that the operator watches. */
const passing = `${namespace}-passing`;
/** One whose users are no administrators. */
const tenant = `${namespace}-tenant`;
let local: LocalHeddle;
let operator: DrivenProcess;
let heddle: Heddle;

const k = (...args: readonly string[]) => kubectl(["--namespace", namespace, ...args]);

interface Shown {
  readonly metadata: { readonly generation: number };
  readonly spec: {
    readonly suspend?: boolean;
    readonly replicas?: number;
    readonly scaling?: { readonly max?: number };
    readonly max_length?: number;
    readonly drain?: object;
  };
  readonly status?: {
    readonly phase?: string;
    readonly jobId?: string;
    readonly reason?: string;
    readonly message?: string;
    readonly wanted?: string;
    readonly observedGeneration?: number;
  };
}

function shown(kind: string, name: string, place = namespace): Shown {
  const args = ["--namespace", place, "get", kind, name, "--output", "json"];
  return JSON.parse(kubectl(args)) as Shown;
}

function apply(kind: string, name: string, spec: object, place = namespace): void {
  const metadata = { name, namespace: place };
  const object = { apiVersion: "heddle.dev/v1alpha1", kind, metadata, spec };
  kubectl(["apply", "--filename", "-"], JSON.stringify(object));
}

const startOperator = () =>
  local.operator(
    [namespace, passing, tenant],
    [
      "--cluster=own",
      `--cluster-namespace=${namespace}`,
      `--projects=${passing}=*,${tenant}=speech`,
    ],
  );

const inPhase = (kind: string, name: string, phase: string, place = namespace) =>
  untilFound(`${kind} ${name} is ${phase}`, () => {
    const object = shown(kind, name, place);
    return object.status?.phase === phase ? object : undefined;
  });

const jobsNamed = async (name: string) => {
  const jobs = [];
  for await (const job of heddle.jobs.list({ name: `${namespace}.${name}` })) jobs.push(job);
  return jobs;
};

describe.skipIf(why !== undefined)("the operator", () => {
  beforeAll(async () => {
    for (const name of [namespace, passing, tenant]) kubectl(["create", "namespace", name]);
    local = await LocalHeddle.start();
    heddle = local.heddle;
    operator = await startOperator();
  });

  afterAll(async () => {
    if (why !== undefined) return;
    k("delete", "trainingjobs,inferencemodels,queues,projects", "--all", "--wait");
    const all = [namespace, passing, tenant, "--ignore-not-found"];
    kubectl(["delete", "namespace", ...all, "--wait=false"]);
    operator.child.kill("SIGTERM");
    await Promise.all([operator.end(), local.end()]);
  });

  it("operator: a TrainingJob runs as one job, and kubectl waits for its end", async () => {
    const spec = { command: "echo hello", queue: "default", labels: { a: "b" } };
    apply("TrainingJob", "hello", spec);
    k("wait", "--for=condition=Complete", "--timeout=120s", "tj/hello");
    const { status } = shown("tj", "hello");
    const job = await heddle.jobs.get(status?.jobId ?? "");
    expect(job).toMatchObject({ state: "succeeded", name: `${namespace}.hello` });
    expect(job.labels).toMatchObject({ a: "b" });
    const selected = (phase: string) =>
      k("get", "tj", `--field-selector=status.phase=${phase},spec.queue=default`);
    expect(selected("Succeeded")).toContain("hello");
    expect(selected("Running")).not.toContain("hello");
    expect(k("get", "tj", "hello")).toMatch(/PHASE +PROGRESS[\s\S]*hello +Succeeded/);
    expect(k("describe", "tj", "hello")).toMatch(/Normal +Succeeded .*heddle-operator/);
  });

  it("operator: an object that is deleted takes its job along", async () => {
    apply("TrainingJob", "deleted", { command: "sleep 600" });
    const { status } = await inPhase("tj", "deleted", "Running");
    k("delete", "tj", "deleted", "--wait", "--timeout=120s");
    expect((await heddle.jobs.get(status?.jobId ?? "")).state).toBe("cancelled");
  });

  it("operator: a cancelled job shows in its object, which stays", async () => {
    apply("TrainingJob", "cancelled", { command: "sleep 600" });
    const { status } = await inPhase("tj", "cancelled", "Running");
    await heddle.jobs.cancel(status?.jobId ?? "");
    await inPhase("tj", "cancelled", "Cancelled");
    k("wait", "--for=condition=Failed", "--timeout=1s", "tj/cancelled");
  });

  it("operator: a refused spec says why, and is taken once it can be", async () => {
    apply("TrainingJob", "refused", { command: "true", queue: "later" });
    const { status } = await inPhase("tj", "refused", "Refused");
    expect(status?.message).toContain("No queue has the name later");
    expect(await jobsNamed("refused")).toEqual([]);
    await heddle.queues.set("later", {});
    await inPhase("tj", "refused", "Succeeded");
  });

  it("operator: an object with a time to live is deleted after its end", async () => {
    apply("TrainingJob", "short", { command: "true", ttl_seconds_after_finished: 2 });
    await untilFound("the object is deleted after its time", () => {
      try {
        shown("tj", "short");
        return undefined;
      } catch (error) {
        return /NotFound/.test(String(error)) || undefined;
      }
    });
    expect(await jobsNamed("short")).toMatchObject([{ state: "succeeded" }]);
  });

  it.each([
    [{ command: "true", tasks: 2, failure_tolerance: 2 }, /failure_tolerance must be less than/],
    [{ command: "true", container_options: { network: "own" } }, /no container_image is named/],
    [{ command: "true", resources: { gpu_memory_gb: 80 } }, /gpu_memory_gb needs a gpu_count/],
    [{ command: "true", retry_limit: -1 }, /spec.retry_limit.*greater than or equal to 0/],
    [{ command: "true", retrylimit: 1 }, /unknown field "spec.retrylimit"/],
  ])("operator: the API server refuses the spec %j", (spec, message) => {
    expect(() => apply("TrainingJob", "wrong", spec)).toThrow(message);
  });

  it("operator: a fixed field cannot be changed", async () => {
    apply("TrainingJob", "fixed", { command: "sleep 600", queue: "default", suspend: true });
    expect(() => apply("TrainingJob", "fixed", { command: "sleep 600", queue: "other" })).toThrow(
      /queue cannot be changed/,
    );
    // The schema of some fields takes several forms, which no rule can compare.
    apply("TrainingJob", "fixed", { command: "sleep 500", queue: "default", suspend: true });
    k("wait", "--for=condition=SpecCurrent=false", "--timeout=60s", "tj/fixed");
    await untilFound("an event says so", () => {
      return /Immutable.*only suspend/.test(k("events", "--for=tj/fixed")) || undefined;
    });
  });

  it("operator: two operators and their crashes submit a job once", async () => {
    const second = await startOperator();
    const names = Array.from({ length: 10 }, (_, at) => `once-${at}`);
    for (const [at, name] of names.entries()) {
      apply("TrainingJob", name, { command: "true" });
      if (at !== 4) continue;
      operator.child.kill("SIGKILL");
      await operator.end();
      operator = await startOperator();
    }
    for (const name of names) await inPhase("tj", name, "Succeeded");
    for (const name of names) expect(await jobsNamed(name)).toHaveLength(1);
    second.child.kill("SIGTERM");
    expect(await second.end()).toBe(0);
  });

  it.skipIf(!process.env["HEDDLE_KUBE_RIG"])(
    "operator: a crash of the API server loses no change, and repeats no job",
    async () => {
      apply("TrainingJob", "before", { command: "sleep 5" });
      await inPhase("tj", "before", "Running");
      crash("kube-apiserver");
      await untilFound("the API server is back", () => {
        apply("TrainingJob", "after", { command: "true" });
        return true;
      });
      await inPhase("tj", "after", "Succeeded");
      await inPhase("tj", "before", "Succeeded");
      expect(await jobsNamed("before")).toHaveLength(1);
    },
  );

  it.skipIf(!process.env["HEDDLE_KUBE_RIG"])(
    "operator: an outage of the API server loses no job, and repeats none",
    { timeout: OUTAGE_SECONDS * 1_000 + 300_000 },
    async () => {
      apply("TrainingJob", "outlives", { command: `sleep ${OUTAGE_SECONDS + 10}` });
      apply("TrainingJob", "ends", { command: "sleep 5" });
      await inPhase("tj", "outlives", "Running");
      const { status } = await inPhase("tj", "ends", "Running");
      const names = Array.from({ length: 5 }, (_, at) => `outage-${at}`);
      for (const name of names) apply("TrainingJob", name, { command: "true" });
      await outage();
      expect((await heddle.jobs.get(status?.jobId ?? "")).state).toBe("succeeded");
      const all = ["outlives", "ends", ...names];
      for (const name of all) await inPhase("tj", name, "Succeeded");
      for (const name of all) expect(await jobsNamed(name)).toHaveLength(1);
    },
  );

  it("operator: a model is registered, scaled from both sides, and removed", async () => {
    const id = `${namespace}-model`;
    apply("InferenceModel", "mine", { id, source: "builtin://tiny", replicas: 1 });
    k("wait", "--for=condition=Ready", "--timeout=120s", "im/mine");
    const chat = {
      model: id,
      messages: [{ role: "user" as const, content: "Hello" }],
      max_tokens: 4,
    };
    const chunks = [];
    for await (const chunk of heddle.chat.stream(chat)) chunks.push(chunk);
    expect(chunks.length).toBeGreaterThan(1);
    k("scale", "im/mine", "--replicas=0");
    await untilFound("scaled by kubectl", async () => {
      return (await heddle.models.get(id)).wanted_replicas === 0 || undefined;
    });
    k("wait", "--for=jsonpath={.status.reason}=ScaledToZero", "--timeout=60s", "im/mine");
    await heddle.models.scale(id, { replicas: 1 });
    await untilFound(
      "the spec follows",
      () => shown("im", "mine").spec.replicas === 1 || undefined,
    );
    await heddle.models.scale(id, { scaling: { min: 1, max: 2 } });
    await untilFound(
      "the spec has the bounds",
      () => shown("im", "mine").spec.scaling?.max === 2 || undefined,
    );
    k("patch", "im", "mine", "--type=merge", "-p", '{"spec":{"replicas":1,"scaling":null}}');
    await untilFound("the bounds are gone in the cluster", async () => {
      return (await heddle.models.get(id)).scaling === null || undefined;
    });
    apply("InferenceModel", "other", { id, source: "builtin://tiny?seed=2" });
    expect((await inPhase("im", "other", "Refused")).status?.reason).toBe("IdTaken");
    k("delete", "im", "other", "--wait");
    expect((await heddle.models.get(id)).id).toBe(id);
    k("delete", "im", "mine", "--wait");
    await expect(heddle.models.get(id)).rejects.toMatchObject({ status: 404 });
  });

  it("operator: whichever side suspends or resumes last, both show it", async () => {
    const seed = Number(process.env["HEDDLE_PROPERTY_SEED"] ?? Date.now() % 100_000);
    console.log(`HEDDLE_PROPERTY_SEED=${seed}`);
    const random = seededRandom(seed);
    apply("TrainingJob", "both", { command: "sleep 600" });
    const { status } = await inPhase("tj", "both", "Running");
    const id = status?.jobId ?? "";
    for (let change = 0; change < 8; change++) {
      const suspend = random() < 0.5;
      if (random() < 0.5)
        k("patch", "tj", "both", "--type=merge", "-p", `{"spec":{"suspend":${suspend}}}`);
      else
        await (suspend ? heddle.jobs.suspend(id) : heddle.jobs.resume(id)).catch(() => undefined);
      await untilFound(`both views agree after change ${change}`, async () => {
        const { state } = await heddle.jobs.get(id, { consistency: "strong" });
        const object = shown("tj", "both");
        const isQuiet = state === "suspended" || state === "running";
        const isSeen = object.status?.observedGeneration === object.metadata.generation;
        const agrees = (object.spec.suspend ?? false) === (state === "suspended");
        const shows = object.status?.phase?.toLowerCase() === state;
        return (isQuiet && isSeen && agrees && shows) || undefined;
      });
    }
  });

  it("operator: a namespace that is deleted takes its jobs and models along", async () => {
    const id = `${passing}-model`;
    apply("TrainingJob", "left", { command: "sleep 600" }, passing);
    apply("InferenceModel", "left", { id, source: "builtin://tiny", replicas: 1 }, passing);
    const { status } = await inPhase("tj", "left", "Running", passing);
    await untilFound("the model is registered", async () => (await heddle.models.get(id)).id);
    kubectl(["delete", "namespace", passing, "--wait", "--timeout=120s"]);
    expect((await heddle.jobs.get(status?.jobId ?? "")).state).toBe("cancelled");
    await expect(heddle.models.get(id)).rejects.toMatchObject({ status: 404 });
    apply("TrainingJob", "others", { command: "true" });
    await inPhase("tj", "others", "Succeeded");
  });

  it("operator: a namespace reaches its own project alone", async () => {
    apply("TrainingJob", "own", { command: "true" }, tenant);
    const { status } = await inPhase("tj", "own", "Succeeded", tenant);
    expect((await heddle.jobs.get(status?.jobId ?? "")).project).toBe("speech");
    apply("TrainingJob", "others", { command: "true", project: "vision" }, tenant);
    apply("InferenceModel", "others", { source: "builtin://tiny" }, tenant);
    apply("Project", "speech", { weight: 9 }, tenant);
    for (const [kind, name] of [
      ["tj", "others"],
      ["im", "others"],
      ["hp", "speech"],
    ] as const) {
      const { status } = await inPhase(kind, name, "Refused", tenant);
      expect(status?.message).toContain(`operator.projects.${tenant}`);
    }
    k("delete", "im/others", "hp/speech", `--namespace=${tenant}`, "--wait", "--timeout=60s");
    expect((await heddle.projects.get("speech")).weight).toBe(1);
  });

  it("operator: a queue and a project are made, and follow either side", async () => {
    apply("Queue", "fast", { strategy: "binpack", max_length: 3 });
    await inPhase("hq", "fast", "Open");
    const queues = async () => {
      for await (const queue of heddle.queues.list()) if (queue.name === "fast") return queue;
      return undefined;
    };
    expect(await queues()).toMatchObject({ strategy: "binpack", max_length: 3 });
    const random = seededRandom(7);
    for (let change = 0; change < 6; change++) {
      const wanted = 10 + change;
      if (random() < 0.5) apply("Queue", "fast", { strategy: "binpack", max_length: wanted });
      else await heddle.queues.set("fast", { strategy: "binpack", max_length: wanted });
      await untilFound(`both show ${wanted}`, async () => {
        const isBoth = shown("hq", "fast").spec.max_length === wanted;
        return (isBoth && (await queues())?.max_length === wanted) || undefined;
      });
    }
    apply("Project", "vision", { weight: 2, quota: { gpu_count: 4 } });
    await inPhase("hp", "vision", "Open");
    expect((await heddle.projects.get("vision")).quota.gpu_count).toBe(4);
    expect(k("get", "hp", "vision")).toMatch(/WEIGHT +GPUS[\s\S]*vision +Open +2/);
    expect(() => apply("Queue", "bad", { strategy: "random" })).toThrow(/strategy/);
    expect(() => apply("Project", "bad", { weight: 0 })).toThrow(/weight/);
  });

  it("operator: nodes and the cluster have objects; a node is drained from both sides", async () => {
    const [node] = (await heddle.workers.list()).filter(({ kind }) => kind === "worker");
    const id = node?.id ?? "";
    const name = node?.name ?? "";
    await inPhase("hw", name, "Ready");
    await inPhase("hc", "own", "Ready");
    k("wait", "--for=condition=Ready", "--timeout=30s", `hw/${name}`, "hc/own");
    k("patch", "hw", name, "--type=merge", "-p", '{"spec":{"drain":{"deadline_seconds":5}}}');
    k("wait", "--for=condition=Drained", "--timeout=60s", `hw/${name}`);
    await heddle.workers.resume(id);
    await untilFound("the object is not drained", () => {
      return shown("hw", name).spec.drain === undefined || undefined;
    });
    await heddle.workers.drain(id);
    await untilFound("the object is drained", () => shown("hw", name).spec.drain);
    k("patch", "hw", name, "--type=merge", "-p", '{"spec":{"drain":null}}');
    await inPhase("hw", name, "Ready");
    k("wait", "--for=condition=Ready", "--timeout=60s", `hw/${name}`);
    k("patch", "hw", name, "--type=merge", "-p", '{"spec":{"drain":{}}}');
    k("wait", "--for=condition=Drained", "--timeout=60s", `hw/${name}`);
    await heddle.workers.resume(id);
    k("wait", "--for=condition=Ready", "--timeout=60s", `hw/${name}`);
    k("delete", "hw", name);
    await inPhase("hw", name, "Ready");
    expect(() => k("patch", "hc", "own", "--type=merge", "-p", '{"spec":{"masters":2}}')).toThrow(
      /masters is 1, 3 or 5/,
    );
  });
});
