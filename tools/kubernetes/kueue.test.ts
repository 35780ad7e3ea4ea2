// holds: kube-kueue

import { randomBytes } from "node:crypto";
import { join } from "node:path";
import type { Heddle } from "@heddle/client/heddle";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { DrivenProcess } from "../../apps/cli/src/testing/driven-process.ts";
import { define, kubectl, untilFound, whyNoCluster } from "./kube-cluster.ts";
import { LocalHeddle } from "./testing/local-heddle.ts";

// Kueue's definitions are its own; the test admits and evicts as its controller does.

const definitions = process.env["HEDDLE_KUEUE_DEFINITIONS"];
const NO_DEFINITIONS = "HEDDLE_KUEUE_DEFINITIONS names no folder with Kueue's definitions";
const why = whyNoCluster() ?? (definitions ? undefined : NO_DEFINITIONS);
if (why !== undefined) console.log(`tests of Kueue's queues are skipped: ${why}`);

const namespace = `kueue-${randomBytes(4).toString("hex")}`;
let local: LocalHeddle;
let operator: DrivenProcess;
let heddle: Heddle;

const k = (...args: readonly string[]) => kubectl(["--namespace", namespace, ...args]);
const phaseIs = (phase: string) =>
  untilFound(`the job is ${phase}`, () => {
    return k("get", "tj", "queued", "--output=jsonpath={.status.phase}") === phase || undefined;
  });
const patchJob = (spec: object) =>
  k("patch", "tj", "queued", "--type=merge", "--patch", JSON.stringify({ spec }));

interface Workload {
  readonly metadata: { readonly name: string };
  readonly spec: { readonly active?: boolean };
}

function workloads(): readonly Workload[] {
  const list = JSON.parse(k("get", "workloads.kueue.x-k8s.io", "--output=json"));
  return (list as { readonly items: readonly Workload[] }).items;
}

const workload = () => untilFound("a Workload", () => workloads()[0]);
const isActive = (active: boolean) =>
  untilFound(`active is ${active}`, () => workloads()[0]?.spec.active === active || undefined);

async function admit(isAdmitted: boolean): Promise<void> {
  const { metadata } = await workload();
  const lastTransitionTime = new Date().toISOString();
  const status = isAdmitted ? "True" : "False";
  const condition = { status, reason: "Test", message: "2 of 2 GPUs", lastTransitionTime };
  const conditions = ["QuotaReserved", "Admitted"].map((type) => ({ type, ...condition }));
  const patch = JSON.stringify({ status: { conditions } });
  const target = ["workloads.kueue.x-k8s.io", metadata.name, "--subresource=status"];
  k("patch", ...target, "--type=merge", "--patch", patch);
}

async function jobs(): Promise<readonly string[]> {
  const ids: string[] = [];
  for await (const { id } of heddle.jobs.list({ name: `${namespace}.queued` })) ids.push(id);
  return ids;
}

describe.skipIf(why !== undefined)("jobs in a queue of Kueue", () => {
  beforeAll(async () => {
    kubectl(["create", "namespace", namespace]);
    const file = join(definitions ?? "", "kueue.x-k8s.io_workloads.yaml");
    await define(file, "--server-side");
    local = await LocalHeddle.start();
    heddle = local.heddle;
    operator = await local.operator(
      [namespace],
      ["--kueue=v1beta2", "--kueue-gpus=nvidia.com/gpu"],
    );
  });

  afterAll(async () => {
    if (why !== undefined) return;
    k("delete", "tj", "--all", "--wait");
    operator.child.kill("SIGTERM");
    await Promise.all([operator.end(), local.end()]);
    kubectl(["delete", "namespace", namespace, "--wait=false"]);
  });

  it("kueue: a gang waits for its Workload, and runs while that is admitted", async () => {
    const labels = { "kueue.x-k8s.io/queue-name": "team" };
    const metadata = { name: "queued", namespace, labels };
    const resources = { cpu_cores: 0.2, memory_gb: 0.2 };
    const spec = { command: "sleep 600", tasks: 2, resources };
    const object = { apiVersion: "heddle.dev/v1alpha1", kind: "TrainingJob", metadata, spec };
    kubectl(["apply", "--filename", "-"], JSON.stringify(object));
    await phaseIs("Queued");
    expect(await workload()).toMatchObject({
      metadata: { ownerReferences: [{ kind: "TrainingJob", name: "queued" }] },
      spec: {
        queueName: "team",
        active: true,
        podSets: [
          {
            count: 2,
            template: { spec: { containers: [{ resources: { requests: { cpu: "100m" } } }] } },
          },
        ],
      },
    });
    expect(await jobs()).toEqual([]);
    await admit(true);
    await phaseIs("Running");
    expect(await jobs()).toHaveLength(1);
  });

  it("kueue: a job is suspended with its admission, and runs again with it", async () => {
    await admit(false);
    await phaseIs("Suspended");
    expect(k("get", "tj", "queued", "--output=jsonpath={.spec.suspend}")).toBe("");
    await admit(true);
    await phaseIs("Running");
  });

  it("kueue: a suspended job asks for no admission, whichever side suspends it", async () => {
    patchJob({ suspend: true });
    await phaseIs("Suspended");
    await isActive(false);
    patchJob({ suspend: false });
    await isActive(true);
    await phaseIs("Running");
    const [id = ""] = await jobs();
    await heddle.jobs.suspend(id);
    await isActive(false);
    expect(k("get", "tj", "queued", "--output=jsonpath={.spec.suspend}")).toBe("true");
    await heddle.jobs.resume(id);
    await isActive(true);
    await phaseIs("Running");
    expect(await jobs()).toEqual([id]);
  });

  it("kueue: the quota of a job that has ended is free", async () => {
    const [id = ""] = await jobs();
    await heddle.jobs.cancel(id);
    await phaseIs("Cancelled");
    await untilFound("no Workload", () => workloads().length === 0 || undefined);
  });
});
