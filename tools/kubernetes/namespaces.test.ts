// holds: kube-namespace-role

import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Heddle } from "@heddle/client/heddle";
import { FINALIZER } from "@heddle/contracts/kubernetes/resource-kind";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parseAllDocuments, stringify } from "yaml";
import type { DrivenProcess } from "../../apps/cli/src/testing/driven-process.ts";
import { kubectl, untilFound, whyNoCluster } from "./kube-cluster.ts";
import { CHART, helm, kubeTool, NO_HELM } from "./kube-tools.ts";
import type { Manifest } from "./manifest-faults.ts";
import { LocalHeddle } from "./testing/local-heddle.ts";

const why = whyNoCluster() ?? (kubeTool("helm") ? undefined : NO_HELM);
if (why !== undefined) console.log(`tests of deleted namespaces are skipped: ${why}`);

const base = `spaces-${randomBytes(4).toString("hex")}`;
const [release, first, second] = [`${base}-release`, `${base}-a`, `${base}-b`];
const binding = `${release}-heddle-operator`;
let local: LocalHeddle;
let operator: DrivenProcess;
let heddle: Heddle;

/** The accounts and rights that the chart gives an operator of two namespaces. */
function applyRights(): void {
  const names = `operator.watchNamespaces={${first},${second}}`;
  const only = ["--show-only", "templates/operator.yaml", "--set", names];
  const text = helm("template", "heddle", CHART, "--namespace", release, ...only);
  const objects = parseAllDocuments(text).map((each) => each.toJS() as Manifest);
  const rights = objects.filter(({ kind }) => kind !== "Deployment");
  expect(
    rights
      .map(({ kind }) => kind)
      .sort()
      .join(" "),
  ).toBe("ClusterRole Role RoleBinding RoleBinding RoleBinding ServiceAccount");
  for (const { metadata, ...rest } of rights) {
    const object = { ...rest, metadata: { namespace: release, ...metadata } };
    kubectl(["apply", "--filename", "-"], stringify(object));
  }
}

/** A kubeconfig of the operator's account. */
function accountConfig(): string {
  const view = ["config", "view", "--raw", "--minify", "--output=json"];
  const { clusters, contexts } = JSON.parse(kubectl(view));
  const token = kubectl(["create", "token", "heddle-operator", `--namespace=${release}`]).trim();
  const [{ name, context }] = contexts;
  const own = { name, context: { ...context, user: "operator" } };
  const file = join(local.folder, "operator.kubeconfig");
  const users = [{ name: "operator", user: { token } }];
  const rest = { apiVersion: "v1", kind: "Config", "current-context": name };
  writeFileSync(file, JSON.stringify({ ...rest, clusters, contexts: [own], users }));
  return file;
}

const startOperator = () =>
  local.operator(
    [first, second],
    [
      "--cluster=heddle",
      `--cluster-namespace=${release}`,
      `--role-binding=${binding}`,
      `--projects=${first}=*,${second}=*`,
    ],
    accountConfig(),
  );

function apply(kind: string, name: string, spec: object, namespace: string): void {
  const metadata = { name, namespace };
  const object = { apiVersion: "heddle.dev/v1alpha1", kind, metadata, spec };
  kubectl(["apply", "--filename", "-"], JSON.stringify(object));
}

const get = (namespace: string, kind: string, name: string, path: string) =>
  kubectl(["--namespace", namespace, "get", kind, name, `--output=jsonpath=${path}`]);
const isHeld = (namespace: string) =>
  get(namespace, "rolebinding", binding, "{.metadata.finalizers}").includes(FINALIZER);

/** The id of a job that runs, in a namespace with a model of the same name. */
async function jobIn(namespace: string): Promise<string> {
  apply("TrainingJob", "left", { command: "sleep 600" }, namespace);
  const model = { id: namespace, source: "builtin://tiny", replicas: 0 };
  apply("InferenceModel", "left", model, namespace);
  await untilFound("the model", async () => (await heddle.models.get(namespace)).id);
  const phase = () => get(namespace, "tj", "left", "{.status.phase}");
  await untilFound("the job runs", () => phase() === "Running" || undefined);
  return get(namespace, "tj", "left", "{.status.jobId}");
}

async function expectDeleted(namespace: string, job: string): Promise<void> {
  kubectl(["delete", "namespace", namespace, "--wait", "--timeout=120s"]);
  expect((await heddle.jobs.get(job)).state).toBe("cancelled");
  await expect(heddle.models.get(namespace)).rejects.toMatchObject({ status: 404 });
}

describe.skipIf(why !== undefined)("namespaces watched by RoleBindings", () => {
  beforeAll(async () => {
    for (const name of [release, first, second]) kubectl(["create", "namespace", name]);
    local = await LocalHeddle.start();
    heddle = local.heddle;
    applyRights();
    operator = await startOperator();
  });

  afterAll(async () => {
    if (why !== undefined) return;
    operator.child.kill("SIGTERM");
    await Promise.all([operator.end(), local.end()]);
    const all = [release, first, second, "--ignore-not-found", "--wait=false"];
    kubectl(["delete", "namespace", ...all]);
    kubectl(["delete", "clusterrole", binding]);
  });

  it("namespaces: one is deleted with its jobs and models, and the other stays", async () => {
    expect([first, second].map(isHeld)).toEqual([false, false]);
    const job = await jobIn(first);
    const other = await jobIn(second);
    expect([first, second].map(isHeld)).toEqual([true, true]);
    await expectDeleted(first, job);
    expect((await heddle.jobs.get(other)).state).toBe("running");
  });

  it("namespaces: rights are let go with the last job, and by a later operator", async () => {
    const objects = ["tj/left", "im/left", `--namespace=${second}`];
    operator.child.kill("SIGKILL");
    await operator.end();
    kubectl(["delete", ...objects, "--wait=false"]);
    const clear = '{"metadata":{"finalizers":null}}';
    for (const name of ["tj/left", "im/left"]) {
      kubectl(["patch", name, `--namespace=${second}`, "--type=merge", "--patch", clear]);
    }
    expect(isHeld(second)).toBe(true);
    operator = await startOperator();
    await untilFound("the RoleBinding is let go", () => !isHeld(second) || undefined);
    apply("TrainingJob", "short", { command: "true" }, second);
    const phase = () => get(second, "tj", "short", "{.status.phase}");
    await untilFound("the job's end", () => phase() === "Succeeded" || undefined);
    await untilFound("the RoleBinding is let go again", () => !isHeld(second) || undefined);
  });

  it("namespaces: all finalizers go where the cluster's own namespace is deleted", async () => {
    apply("TrainingJob", "held", { command: "sleep 600" }, second);
    await untilFound("the RoleBinding is held", () => isHeld(second) || undefined);
    // Kubernetes ends Pods before it deletes anything else; this operator is none.
    const pod = { restartPolicy: "Never", containers: [{ name: "a", image: "heddle/none:1" }] };
    const metadata = { name: "stays", namespace: release, finalizers: [FINALIZER] };
    const object = { apiVersion: "v1", kind: "Pod", metadata, spec: pod };
    kubectl(["apply", "--filename", "-"], JSON.stringify(object));
    kubectl(["delete", "namespace", release, "--wait=false"]);
    operator.child.kill("SIGTERM");
    expect(await operator.end()).toBe(0);
    expect(isHeld(second)).toBe(false);
    expect(get(second, "tj", "held", "{.metadata.finalizers}")).toBe("");
    const clear = '{"metadata":{"finalizers":null}}';
    const stays = ["pod/stays", `--namespace=${release}`, "--type=merge", "--patch", clear];
    kubectl(["patch", ...stays]);
    kubectl(["wait", "--for=delete", `namespace/${release}`, "--timeout=120s"]);
  });
});
