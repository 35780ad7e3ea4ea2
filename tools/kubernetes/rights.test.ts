// holds: kube-rights

import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parseAllDocuments } from "yaml";
import { kubectl, untilFound } from "./kube-cluster.ts";
import type { Manifest } from "./manifest-faults.ts";
import { ChartRelease, SMALL_PARTS, whyNoRelease } from "./release.ts";

const auditLog = process.env["HEDDLE_KUBE_AUDIT_LOG"] ?? "";
const NO_LOG = "HEDDLE_KUBE_AUDIT_LOG names no audit log of the API server";
const why = whyNoRelease() ?? (auditLog === "" ? NO_LOG : undefined);
if (why !== undefined) console.log(`tests of accounts' rights are skipped: ${why}`);

const namespace = `rights-${randomBytes(4).toString("hex")}`;
/** Another one that the operator watches. */
const other = `${namespace}-other`;
const release = new ChartRelease(namespace);
const k = (...args: readonly string[]) => release.kubectl(...args);
/** All that an account has rights for. */
const VALUES = {
  ...SMALL_PARTS,
  master: { ...SMALL_PARTS.master, replicas: 1 },
  worker: {
    ...SMALL_PARTS.worker,
    executor: "pod",
    gpu: { resourceName: "nvidia.com/gpu", count: 0 },
  },
  operator: {
    watchNamespaces: [namespace, other],
    externalMetrics: { enabled: true },
    pendingPods: { enabled: true, afterSeconds: 1 },
    resources: { requests: { cpu: "10m", memory: "64Mi" } },
  },
};

interface AuditEvent {
  readonly verb: string;
  readonly user: { readonly username: string };
  readonly objectRef?: {
    readonly apiGroup?: string;
    readonly resource: string;
    readonly subresource?: string;
  };
  readonly annotations?: { readonly "authorization.k8s.io/decision"?: string };
}

interface Role extends Manifest {
  readonly rules: readonly {
    readonly apiGroups: readonly string[];
    readonly resources: readonly string[];
    readonly verbs: readonly string[];
  }[];
}

interface Binding extends Manifest {
  readonly roleRef: { readonly name: string };
  readonly subjects: readonly { readonly name: string }[];
}

/** What the release's accounts have asked for, and been given or denied: ACCOUNT VERB GROUP/RESOURCE. */
function asked(decision: "allow" | "forbid"): ReadonlySet<string> {
  const prefix = `system:serviceaccount:${namespace}:`;
  const lines = readFileSync(auditLog, "utf8").split("\n");
  const events = lines
    .filter((line) => line.includes(prefix) && line.endsWith("}"))
    .map((line) => JSON.parse(line) as AuditEvent)
    .filter((event) => event.annotations?.["authorization.k8s.io/decision"] === decision);
  return new Set(
    events.flatMap(({ verb, user, objectRef }) => {
      if (!objectRef) return [];
      const { apiGroup = "", resource, subresource } = objectRef;
      const what = [apiGroup, resource, ...(subresource ? [subresource] : [])].join("/");
      return [`${user.username.slice(prefix.length)} ${verb} ${what}`];
    }),
  );
}

/** What the chart's own roles grant. */
function granted(): ReadonlySet<string> {
  const text = ["manifest", "hooks"].map((what) => release.helm(["get", what, "heddle"], {}));
  const objects = parseAllDocuments(text.join("\n---\n")).flatMap(
    (each) => (each.toJS() as Manifest | null) ?? [],
  );
  const roles = objects.filter(({ kind }) => /^(Cluster)?Role$/.test(kind)) as Role[];
  const bindings = objects.filter(({ kind }) => /RoleBinding$/.test(kind)) as Binding[];
  const rights = bindings.flatMap(({ roleRef, subjects }) =>
    subjects.flatMap(({ name }) =>
      roles
        .filter(({ metadata }) => metadata.name === roleRef.name)
        .flatMap(({ rules }) => rules)
        .flatMap(({ apiGroups, resources, verbs }) =>
          apiGroups.flatMap((group) =>
            resources.flatMap((what) => verbs.map((verb) => `${name} ${verb} ${group}/${what}`)),
          ),
        ),
    ),
  );
  return new Set(rights);
}

function apply(kind: string, name: string, spec: object, annotations: object = {}): void {
  const metadata = { name, namespace, annotations };
  const object = { apiVersion: "heddle.dev/v1alpha1", kind, metadata, spec };
  kubectl(["apply", "--filename", "-"], JSON.stringify(object));
}

const shown = (kind: string, name: string, path: string) =>
  k("get", kind, name, `--output=jsonpath=${path}`);
const until = (kind: string, name: string, path: string, value: string) =>
  untilFound(
    `${kind} ${name} ${path} is ${value}`,
    () => shown(kind, name, path) === value || undefined,
    300_000,
  );
const untilGone = (kind: string, name: string) =>
  untilFound(`${kind} ${name} is gone`, () => {
    return k("get", kind, name, "--ignore-not-found", "--output=name") === "" || undefined;
  });

/** A Secret of an earlier version, which an upgrade completes. */
function upgradeOldSecret(): void {
  const patch = '[{"op": "remove", "path": "/data/enroll-key"}]';
  k("patch", "secret", "heddle-cluster", "--type=json", "--patch", patch);
  release.upgrade(VALUES);
}

const readyNode = () =>
  untilFound("a ready node", () => {
    const path = '{.items[?(@.status.phase=="Ready")].metadata.name}';
    return k("get", "hw", `--output=jsonpath=${path}`) || undefined;
  });

async function runJobs(): Promise<void> {
  const image = "heddle/heddle:0.1.0";
  const resources = { cpu_cores: 0.02, memory_gb: 0.05 };
  const spec = { command: "true", container_image: image, resources };
  apply("TrainingJob", "short", { ...spec, ttl_seconds_after_finished: 1 });
  await untilGone("tj", "short");
  const gpus = (gpu_count: number) => ({ ...spec, resources: { ...resources, gpu_count } });
  apply("TrainingJob", "first", { ...gpus(1), command: "sleep 600" });
  await until("tj", "first", "{.status.phase}", "Running");
  apply("TrainingJob", "wide", gpus(8));
  const pods = () => k("get", "pods", "--selector=heddle.dev/pending", "--output=name");
  await untilFound("a Pod in place of the job", () => pods() !== "" || undefined);
  k("delete", "tj", "wide", "first", "--wait", "--timeout=120s");
  await untilFound("no such Pod", () => pods() === "" || undefined);
}

async function changeSettings(): Promise<void> {
  apply("InferenceModel", "mine", { source: "builtin://tiny", replicas: 0 });
  await untilFound("the model is taken", () => shown("im", "mine", "{.status.phase}") || undefined);
  k("delete", "im", "mine", "--wait", "--timeout=60s");
  apply("Queue", "fast", { max_length: 3 });
  await until("hq", "fast", "{.status.phase}", "Open");
  release.heddle("queues set fast --max-length 4");
  await until("hq", "fast", "{.spec.max_length}", "4");
  apply("Project", "vision", { weight: 2 });
  await until("hp", "vision", "{.status.phase}", "Open");
  release.heddle("projects set vision --weight 3");
  await until("hp", "vision", "{.spec.weight}", "3");
}

async function changeNodes(): Promise<void> {
  const name = await readyNode();
  k("patch", "hw", name, "--type=merge", "--patch", '{"spec": {"drain": {}}}');
  await until("hw", name, "{.status.conditions[?(@.type=='Drained')].status}", "True");
  release.heddle("workers resume heddle-worker-0");
  await until("hw", name, "{.spec.drain}", "");
  // Those of a node and a cluster that are no more.
  const made = { "heddle.dev/settings": "{}" };
  apply("Worker", "forgotten", {}, made);
  await untilGone("hw", "forgotten");
  apply("HeddleCluster", "forgotten", {}, made);
  await untilGone("hc", "forgotten");
}

/** It checks whether its namespace ends before it does itself. */
function replaceOperator(): void {
  k("delete", "pod", "--selector=app.kubernetes.io/component=operator", "--wait");
  k("rollout", "status", "deployment/heddle-operator", "--timeout=240s");
}

async function changeMasters(): Promise<void> {
  k("scale", "statefulset/heddle-master", "--replicas=3");
  await until("hc", "heddle", "{.spec.masters}", "3");
  k("scale", "heddlecluster/heddle", "--replicas=1");
  await until("statefulset", "heddle-master", "{.spec.replicas}", "1");
}

describe.skipIf(why !== undefined)("rights of the chart's accounts", { timeout: 900_000 }, () => {
  beforeAll(async () => {
    for (const name of [namespace, other]) kubectl(["create", "namespace", name]);
    release.install(VALUES);
    upgradeOldSecret();
    await readyNode();
    await runJobs();
    await changeSettings();
    await changeNodes();
    await changeMasters();
    replaceOperator();
  }, 900_000);
  afterAll(() => {
    if (why !== undefined) return;
    k("delete", "queues,projects,inferencemodels,trainingjobs", "--all", "--wait");
    release.helm(["uninstall", "heddle", "--wait"], {});
    kubectl(["delete", "namespace", namespace, other, "--wait=false"]);
  });

  it("rights: accounts are denied nothing that they ask for", () => {
    expect([...asked("forbid")].sort()).toEqual([]);
  });

  it("rights: every verb that a role grants is used", () => {
    const [used, rights] = [asked("allow"), granted()];
    expect(rights.size).toBeGreaterThan(20);
    expect([...rights].filter((right) => !used.has(right)).sort()).toEqual([]);
  });
});
