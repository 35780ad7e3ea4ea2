// holds: kube-autoscaling, kube-pending-pods, kube-larger-gangs

import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { addNode, kubectl, untilFound } from "./kube-cluster.ts";
import { ChartRelease, SMALL_PARTS, whyNoRelease } from "./release.ts";

const why = whyNoRelease();
if (why !== undefined) console.log(`tests of autoscaling are skipped: ${why}`);

const namespace = `autoscaling-${randomBytes(4).toString("hex")}`;
const release = new ChartRelease(namespace);
const k = (...args: readonly string[]) => release.kubectl(...args);
const METRICS = "/apis/external.metrics.k8s.io/v1beta1";
const VALUES = {
  ...SMALL_PARTS,
  master: { ...SMALL_PARTS.master, replicas: 1 },
  worker: {
    ...SMALL_PARTS.worker,
    taskIsolation: "optional",
    simulateGpus: "16xH100-80GB",
    autoscaling: {
      enabled: true,
      minReplicas: 1,
      maxReplicas: 3,
      scaleDownSeconds: 0,
      metrics: [{ name: "heddle_job_tasks", perWorker: "2" }],
    },
  },
  operator: {
    externalMetrics: { enabled: true },
    pendingPods: { enabled: true, afterSeconds: 1, tolerations: [{ operator: "Exists" }] },
    resources: { requests: { cpu: "10m", memory: "64Mi" } },
  },
};

const workers = () =>
  Number(k("get", "statefulset", "heddle-worker", "--output=jsonpath={.status.readyReplicas}"));

function metric(name: string): number {
  const text = kubectl(["get", "--raw", `${METRICS}/namespaces/${namespace}/${name}`]);
  return Number(JSON.parse(text).items[0].value);
}

function setSetting(name: string, value: number): void {
  const script = `fetch("http://heddle.${namespace}.svc/api/v1/cluster/settings/${name}", {
    method: "PUT",
    headers: {
      "content-type": "application/json",
      authorization: "Bearer " + require("fs").readFileSync("/run/heddle/secrets/bootstrap-key", "utf8").trim(),
    },
    body: JSON.stringify({ value: ${value} }),
  }).then((reply) => process.exit(reply.ok ? 0 : 1))`;
  k("exec", "heddle-master-0", "--container=master", "--", "node", "--eval", script);
}

describe.skipIf(why !== undefined)("autoscaling", { timeout: 600_000 }, () => {
  beforeAll(() => {
    kubectl(["create", "namespace", namespace]);
    release.install(VALUES);
  }, 600_000);
  afterAll(() => {
    if (why !== undefined) return;
    release.helm(["uninstall", "heddle", "--wait"], {});
    kubectl(["delete", "namespace", namespace, "--wait=false"]);
  });

  it.skipIf(!process.env["HEDDLE_KUBE_RIG"])(
    "autoscaling: a Pod in place of a job without room is placed once there is a node",
    async () => {
      const submit = (gpu_count: number) => {
        const resources = { gpu_count, cpu_cores: 0.01, memory_gb: 0.05 };
        const spec = { name: `gpus-${gpu_count}`, command: "sleep 600", resources };
        return JSON.parse(release.heddle("jobs submit - --output json", JSON.stringify(spec)))
          .job_id as string;
      };
      await untilFound("a ready worker", () => {
        return /heddle-worker-0 +ready/.test(release.heddle("workers list")) || undefined;
      });
      const first = submit(1);
      const id = submit(16);
      const pods = () => {
        const args = ["get", "pods", `--selector=heddle.dev/job=${id}`, "--output=json"];
        return (JSON.parse(k(...args)) as { readonly items: readonly PendingPod[] }).items;
      };
      const refused = await untilFound("a Pod without a node", () => {
        const conditions = pods().flatMap(({ status }) => status.conditions ?? []);
        return conditions.find(({ reason }) => reason === "Unschedulable");
      });
      expect(refused.message).toContain("Insufficient nvidia.com/gpu");
      // An autoscaler ignores Pods below this priority.
      expect(pods().map(({ spec: { priority } }) => priority)).toEqual([-10]);
      addNode({ prefix: "wide", gpus: 16 });
      await untilFound("it is on the new node", () => {
        return pods()[0]?.spec.nodeName?.startsWith("wide") || undefined;
      });
      for (const each of [id, first]) release.heddle(`jobs cancel ${each}`);
      await untilFound("the Pod goes", () => pods().length === 0 || undefined);
    },
  );

  it("autoscaling: a gang larger than all nodes has Pods, where a setting has it wait", async () => {
    setSetting("unsatisfiable_wait", 600);
    const resources = { gpu_count: 48, cpu_cores: 0.01, memory_gb: 0.05 };
    const spec = { name: "larger", command: "true", tasks: 3, resources };
    const submitted = release.heddle("jobs submit - --output json", JSON.stringify(spec));
    const { job_id: id } = JSON.parse(submitted) as { readonly job_id: string };
    const pods = () => k("get", "pods", `--selector=heddle.dev/job=${id}`, "--output=name");
    await untilFound("three Pods", () => pods().match(/pod\//g)?.length === 3 || undefined);
    expect(JSON.parse(release.heddle(`jobs get ${id} --output json`))).toMatchObject({
      state: "accepted",
    });
    release.heddle(`jobs cancel ${id}`);
    await untilFound("the Pods go", () => pods() === "" || undefined);
  });

  it("autoscaling: Kubernetes' own autoscaler adds workers by what jobs need", async () => {
    kubectl(["wait", "--for=condition=Available", "apiservice/v1beta1.external.metrics.k8s.io"]);
    await untilFound("a worker", () => workers() === 1 || undefined);
    const ids = Array.from({ length: 5 }, (_, at) => {
      const spec = { name: `wide-${at}`, command: "sleep 600", resources: { cpu_cores: 0.01 } };
      return JSON.parse(release.heddle("jobs submit - --output json", JSON.stringify(spec))).job_id;
    });
    await untilFound("the metric", () => metric("heddle_job_tasks") === 5 || undefined);
    await untilFound("three workers", () => workers() === 3 || undefined, 240_000);
    expect(release.heddle("workers list").match(/heddle-worker-\d +ready/g)).toHaveLength(3);
    for (const id of ids) release.heddle(`jobs cancel ${id}`);
    await untilFound("one worker", () => workers() === 1 || undefined, 300_000);
  });

  it("autoscaling: Kubernetes' own autoscaler changes the replicas of a model", async () => {
    const model = { apiVersion: "heddle.dev/v1alpha1", kind: "InferenceModel" };
    const metadata = { name: "mine", namespace };
    const apply = (object: object) =>
      kubectl(["apply", "--filename", "-"], JSON.stringify({ metadata, ...object }));
    apply({ ...model, spec: { source: "builtin://tiny", replicas: 1 } });
    k("wait", "--for=condition=Ready", "inferencemodel/mine", "--timeout=120s");
    const target = { type: "AverageValue", averageValue: "1" };
    const external = { metric: { name: "heddle_requests" }, target };
    const spec = {
      scaleTargetRef: { ...model, name: "mine" },
      minReplicas: 2,
      maxReplicas: 3,
      metrics: [{ type: "External", external }],
    };
    apply({ apiVersion: "autoscaling/v2", kind: "HorizontalPodAutoscaler", spec });
    k("wait", "--for=condition=ScalingActive", "hpa/mine", "--timeout=120s");
    await untilFound("two replicas are wanted", () => {
      const path = "--output=jsonpath={.spec.replicas} {.status.wanted}";
      return k("get", "inferencemodel", "mine", path) === "2 2" || undefined;
    });
    k("delete", "hpa/mine", "inferencemodel/mine", "--wait", "--timeout=60s");
  });

  it("autoscaling: the operator answers only the API server", () => {
    k("wait", "--for=condition=Available", "deployment/heddle-operator", "--timeout=120s");
    const url = `https://heddle-operator.${namespace}.svc${METRICS}/namespaces/${namespace}/heddle_requests`;
    const script = `fetch("${url}").then(async (r) => console.log(r.status, await r.text()))`;
    const insecure = "NODE_TLS_REJECT_UNAUTHORIZED=0";
    const command = ["sh", "-c", `${insecure} node --eval '${script}' 2>/dev/null`];
    const answer = k("exec", "heddle-master-0", "--container=master", "--", ...command);
    expect(answer).toMatch(/^401 .*only the API server is answered/);
  });

  it("autoscaling: an unknown metric is not found, and the group says what there is", () => {
    expect(() => metric("heddle_none")).toThrow(/there is no metric heddle_none|NotFound/);
    const { resources } = JSON.parse(kubectl(["get", "--raw", METRICS]));
    expect(resources.map(({ name }: { name: string }) => name)).toContain("heddle_job_gpus");
  });
});

interface PendingPod {
  readonly spec: { readonly priority: number; readonly nodeName?: string };
  readonly status: {
    readonly conditions?: readonly { readonly reason?: string; readonly message?: string }[];
  };
}
