// holds: kube-accepted, kube-installed, kube-faults, kube-members

import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parseAllDocuments, stringify } from "yaml";
import { crash, kubectl, untilFound, whyNoCluster } from "./kube-cluster.ts";
import { CHART, kubeTool, NO_HELM } from "./kube-tools.ts";
import type { Manifest } from "./manifest-faults.ts";
import { whyNoRelease } from "./release.ts";

const why = whyNoCluster() ?? (kubeTool("helm") ? undefined : NO_HELM);
const whyNoPods = whyNoRelease();
if (whyNoPods !== undefined) console.log(`tests of the installed chart are skipped: ${whyNoPods}`);

/** From nothing, with the images on the node. */
const MAX_FIRST_CHAT_SECONDS = 120;
const suffix = randomBytes(4).toString("hex");
const namespace = `chart-${suffix}`;
/** For the values that ask for more rights than restricted pods have. */
const privileged = `chart-privileged-${suffix}`;
/** Small enough for one machine, with weights that need no network. */
const SMALL = {
  master: {
    profile: "tiny",
    resources: { requests: { cpu: "10m", memory: "64Mi" }, limits: { memory: "2Gi" } },
    extraEnv: [{ name: "HEDDLE_WAL_SEGMENT_MIB", value: "4" }],
    persistence: { size: "1Gi" },
  },
  worker: {
    simulateGpus: "2xH100-80GB",
    resources: { requests: { cpu: "10m", memory: "64Mi" } },
    persistence: { size: "1Gi" },
  },
  parameterServer: { replicas: 1, resources: { requests: { cpu: "10m", memory: "64Mi" } } },
  test: { model: "FamilyA-1-2B" },
};

/** A worker on each node, whose data are on the node's disk. */
const FLEET = {
  ...SMALL,
  master: { ...SMALL.master, replicas: 1 },
  parameterServer: { replicas: 0 },
  operator: { enabled: false },
  crds: { enabled: false },
  worker: {
    ...SMALL.worker,
    kind: "DaemonSet",
    taskIsolation: "optional",
    persistence: { hostPath: `/var/lib/heddle-fleet-${suffix}` },
  },
};

const k = (...args: readonly string[]) => kubectl(["--namespace", namespace, ...args]);

function helm(args: readonly string[], values: object = SMALL): string {
  const env = { ...process.env, KUBECONFIG: process.env["HEDDLE_KUBECONFIG"] };
  const options = { encoding: "utf8", stdio: "pipe", env, input: stringify(values) } as const;
  try {
    return execFileSync(kubeTool("helm") ?? "helm", ["--namespace", namespace, ...args], options);
  } catch (error) {
    const { stdout, stderr } = error as { stdout: string; stderr: string };
    throw new Error(`helm ${args.join(" ")}: ${stdout}${stderr}`);
  }
}

/** What the command line writes in the pod of a master that runs. */
function heddle(command: string, place = namespace): string {
  const [pod = ""] = kubectl([
    `--namespace=${place}`,
    "get",
    "pods",
    "--selector=app.kubernetes.io/component=master",
    "--field-selector=status.phase=Running",
    "--output=jsonpath={.items[*].metadata.name}",
  ]).split(" ");
  const access = "HEDDLE_API_KEY=$(cat /run/heddle/secrets/bootstrap-key)";
  const endpoint = `HEDDLE_ENDPOINT=http://heddle.${place}.svc:80`;
  const program = `${access} ${endpoint} heddle ${command}`;
  const shell = ["--container=master", "--", "sh", "-c", program];
  return kubectl([`--namespace=${place}`, "exec", pod, ...shell]);
}

interface Group {
  readonly leader: string | null;
  readonly quorum: { readonly voters: number; readonly has_quorum: boolean };
}

const group = () => JSON.parse(heddle("cluster status --output json")) as Group;
const groupOf = (voters: number) =>
  untilFound(`a group of ${voters} masters`, () => {
    const found = group();
    return found.quorum.voters === voters && found.quorum.has_quorum && found.leader
      ? found.leader
      : undefined;
  });

beforeAll(() => {
  if (why !== undefined) return;
  for (const [name, level] of [
    [namespace, "restricted"],
    [privileged, "privileged"],
  ] as const) {
    kubectl(["create", "namespace", name]);
    kubectl(["label", "namespace", name, `pod-security.kubernetes.io/enforce=${level}`]);
  }
});
afterAll(() => {
  if (why !== undefined) return;
  kubectl(["delete", "namespace", namespace, privileged, "--wait=false"]);
});

describe.skipIf(why !== undefined)("the chart on a cluster", () => {
  const files = ["values.yaml", ...readdirSync(join(CHART, "ci")).map((name) => `ci/${name}`)];
  it.each(files)("chart: the API server accepts every object of %s", (file) => {
    const values = join(CHART, file);
    // A DaemonSet's workers have their data on the node.
    const isFreed = /privileged: true|kind: DaemonSet/.test(readFileSync(values, "utf8"));
    const place = isFreed ? privileged : namespace;
    const args = ["template", "dry", CHART, "--values", values, "--namespace", place];
    const text = execFileSync(kubeTool("helm") ?? "helm", args, { encoding: "utf8" });
    const objects = parseAllDocuments(text).flatMap((each) => (each.toJS() as Manifest) ?? []);
    // Those of other projects' definitions, which this cluster may lack.
    const foreign = objects.filter(({ apiVersion }) =>
      /^(monitoring|keda|gateway)\./.test(apiVersion),
    );
    const own = objects.filter((object) => !foreign.includes(object));
    expect(own.length).toBeGreaterThan(15);
    const accounts = own.filter(({ kind }) => kind === "ServiceAccount");
    const apply = (list: readonly Manifest[], ...flags: readonly string[]) =>
      kubectl(
        ["apply", "--validate=strict", ...flags, "--filename", "-"],
        list.map((object) => stringify(object, { aliasDuplicateObjects: false })).join("---\n"),
      );
    const here = `--namespace=${place}`;
    apply(accounts, here);
    // The API server's own namespace has one, which lets it ask for metrics.
    const outside = own.filter(({ metadata }) => (metadata.namespace ?? place) !== place);
    const inside = own.filter((object) => !outside.includes(object));
    const texts = [apply(inside, here, "--dry-run=server")];
    if (outside.length > 0) texts.push(apply(outside, "--dry-run=server"));
    expect(texts.join("").trim().split("\n")).toHaveLength(own.length);
    // A pod that the namespace's level would refuse is only a warning on its template.
    const pods = own.flatMap(podOf);
    expect(pods.length).toBeGreaterThan(3);
    for (const pod of pods) apply([pod], here, "--dry-run=server");
    kubectl(["delete", "--namespace", place, "serviceaccount", "--all"]);
  });
});

interface PodSpec {
  readonly volumes?: readonly { readonly name: string }[];
  readonly runtimeClassName?: string;
}

/** The pod of a workload, as its controller would make it, but for what a node must have installed. */
function podOf({ kind, metadata, ...rest }: Manifest): Manifest[] {
  const spec = rest["spec"] as { readonly template?: { readonly spec?: PodSpec } } | undefined;
  const pod = spec?.template?.spec;
  if (!pod || !["StatefulSet", "DaemonSet", "Deployment", "Job"].includes(kind)) return [];
  const { volumes = [], runtimeClassName: _, ...others } = pod;
  const claims = volumes.some(({ name }) => name === "data")
    ? []
    : [{ name: "data", emptyDir: {} }];
  const name = `${metadata.name}-${kind.toLowerCase()}`;
  const own = { ...others, volumes: [...volumes, ...claims] };
  return [{ apiVersion: "v1", kind: "Pod", metadata: { name }, spec: own }];
}

describe.skipIf(whyNoPods !== undefined)("an installed chart", { timeout: 1_200_000 }, () => {
  // Five masters' starts have taken more than 300 s of a machine that others used too.
  const install = (...args: readonly string[]) =>
    helm([...args, "heddle", CHART, "--values", "-", "--wait", "--timeout", "500s"]);

  beforeAll(() => {
    // Another release may have left earlier ones; a new cluster has none.
    const definitions = kubectl(["get", "crd", "--output=name"]);
    if (!definitions.includes("heddle.dev")) return;
    kubectl([
      "apply",
      "--server-side",
      "--force-conflicts",
      "--filename",
      join(CHART, "files/crds"),
    ]);
  });

  it("chart: is installed with nothing else, and a model answers", async () => {
    const startedMs = performance.now();
    install("install");
    expect(helm(["test", "heddle"])).toMatch(/Phase: +Succeeded/);
    const seconds = (performance.now() - startedMs) / 1_000;
    console.log(`first chat ${Math.round(seconds)} s after helm install`);
    expect(seconds).toBeLessThan(MAX_FIRST_CHAT_SECONDS);
    await groupOf(3);
    expect(heddle("workers list")).toMatch(/heddle-worker-0 +ready/);
    expect(heddle("workers list")).toMatch(/heddle-parameter-server-0 +ready/);
  });

  it("chart: a TrainingJob gets GPUs of a worker's pod", () => {
    const spec = { command: "echo hello from $HEDDLE_NODE", resources: { gpu_count: 2 } };
    const metadata = { name: "hello", namespace };
    const job = { apiVersion: "heddle.dev/v1alpha1", kind: "TrainingJob", metadata, spec };
    kubectl(["apply", "--filename", "-"], JSON.stringify(job));
    k("wait", "--for=condition=Complete", "--timeout=120s", "trainingjob/hello");
    const id = k("get", "tj", "hello", "--output=jsonpath={.status.jobId}");
    expect(heddle(`jobs logs ${id}`)).toContain("hello from heddle-worker-0");
  });

  it("chart: the group outlives its leader's pod, which comes back", async () => {
    const leader = await groupOf(3);
    k("delete", "pod", leader, "--force", "--grace-period=0");
    const next = await untilFound("another leader", () => {
      const { leader: found, quorum } = group();
      return found && found !== leader && quorum.has_quorum ? found : undefined;
    });
    expect(next).not.toBe(leader);
    k("rollout", "status", "statefulset/heddle-master", "--timeout=240s");
    await groupOf(3);
  });

  it("chart: a worker's pod that is killed keeps its name and its certificate", async () => {
    const certificate = ["heddle-worker-0", "--", "sha256sum", "/data/node-certificate.json"];
    const before = k("exec", ...certificate);
    k("delete", "pod", "heddle-worker-0", "--force", "--grace-period=0");
    k("rollout", "status", "statefulset/heddle-worker", "--timeout=240s");
    expect(k("exec", ...certificate)).toBe(before);
    await untilFound("a ready worker", () => {
      return /heddle-worker-0 +ready/.test(heddle("workers list")) || undefined;
    });
  });

  it.skipIf(!process.env["HEDDLE_KUBE_RIG"])(
    "chart: a kubelet that is killed ends no pod and no job",
    async () => {
      const containers = () =>
        k("get", "pods", "--output=jsonpath={.items[*].status.containerStatuses[*].containerID}");
      const heartbeat = () =>
        kubectl([
          "--namespace=kube-node-lease",
          "get",
          "leases",
          "--output=jsonpath={.items[0].spec.renewTime}",
        ]);
      const metadata = { name: "outlives", namespace };
      const spec = { command: "sleep 20" };
      const job = { apiVersion: "heddle.dev/v1alpha1", kind: "TrainingJob", metadata, spec };
      kubectl(["apply", "--filename", "-"], JSON.stringify(job));
      k("wait", "--for=condition=Running", "--timeout=60s", "tj/outlives");
      const before = containers();
      const last = heartbeat();
      crash("kubelet");
      await untilFound("the kubelet is back", () => heartbeat() !== last || undefined);
      k("wait", "--for=condition=Complete", "--timeout=120s", "tj/outlives");
      expect(containers()).toBe(before);
      await groupOf(3);
    },
  );

  it("chart: masters join and leave with the value of their number", async () => {
    install("upgrade", "--set", "master.replicas=5");
    await groupOf(5);
    install("upgrade", "--set", "master.replicas=3");
    await groupOf(3);
    k("rollout", "status", "statefulset/heddle-master", "--timeout=240s");
    expect(helm(["test", "heddle"])).toMatch(/Phase: +Succeeded/);
  });

  it("chart: a DaemonSet's workers join by the enrolment key alone, and again", async () => {
    const at = `--namespace=${privileged}`;
    helm(["install", "heddle", CHART, "--values", "-", "--wait", "--timeout", "300s", at], FLEET);
    const name = k("get", "nodes", "--output=jsonpath={.items[0].metadata.name}");
    const isReady = () => new RegExp(`${name} +ready`).test(heddle("workers list", privileged));
    await untilFound("the node's worker", () => isReady() || undefined);
    const set = k(at, "get", "daemonset", "heddle-worker", "--output=yaml");
    expect(set).toContain("enroll-key");
    expect(set).not.toContain("bootstrap-key");
    const selector = "--selector=app.kubernetes.io/component=worker";
    const node = `--field-selector=spec.nodeName=${name}`;
    const pod = () => k(at, "get", "pods", selector, node, "--output=name").trim();
    const certificate = () =>
      k(at, "exec", pod(), "--", "sha256sum", "/data/node-certificate.json");
    const before = certificate();
    k(at, "exec", pod(), "--", "rm", "/data/node-certificate.json");
    k(at, "delete", pod(), "--wait=true");
    k(at, "rollout", "status", "daemonset/heddle-worker", "--timeout=240s");
    await untilFound("the worker again", () => isReady() || undefined);
    expect(certificate()).not.toBe(before);
    helm(["uninstall", "heddle", "--wait", at]);
  });

  it("chart: an upgrade mends a release whose master never started", () => {
    const at = `--namespace=${privileged}`;
    const fault = ["--set", "master.extraArgs={--nonsense}"];
    helm(["install", "heddle", CHART, "--values", "-", ...fault, at], FLEET);
    helm(["upgrade", "heddle", CHART, "--values", "-", "--wait", "--timeout", "300s", at], FLEET);
    expect(heddle("workers list", privileged)).toMatch(/ ready/);
    helm(["uninstall", "heddle", "--wait", at]);
  });

  it("chart: removal leaves the Secret and the masters' claims", async () => {
    helm(["uninstall", "heddle", "--wait"]);
    expect(k("get", "secret", "heddle-cluster", "--output=name")).toContain("heddle-cluster");
    expect(k("get", "pvc", "--output=name").match(/data-heddle-master-/g)).toHaveLength(3);
  });
});
