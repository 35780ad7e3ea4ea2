// holds: kube-task-pods, kube-claims, kube-model-pods, kube-outage

import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { kubectl, OUTAGE_SECONDS, outage, untilFound } from "./kube-cluster.ts";
import { ChartRelease, SMALL_PARTS, whyNoRelease } from "./release.ts";
import { DeviceDriver } from "./testing/device-driver.ts";

const why = whyNoRelease();
if (why !== undefined) console.log(`tests of tasks in Pods are skipped: ${why}`);

const namespace = `tasks-${randomBytes(4).toString("hex")}`;
const release = new ChartRelease(namespace);
const VALUES = {
  master: { ...SMALL_PARTS.master, replicas: 1 },
  parameterServer: { replicas: 0 },
  operator: { enabled: false },
  worker: {
    ...SMALL_PARTS.worker,
    executor: "pod",
    gpu: { resourceName: "nvidia.com/gpu", count: 0 },
    pods: {
      template: { metadata: { annotations: { team: "a" } } },
      queues: { night: { metadata: { annotations: { team: "b", shift: "night" } } } },
    },
  },
};
/** GPUs of a driver for dynamic resource allocation instead. */
const CLAIMED = { resourceClaimTemplateName: "one-gpu", count: 2 };
const BY_CLAIMS = { ...VALUES, worker: { ...VALUES.worker, gpu: CLAIMED } };

interface Job {
  readonly state: string;
  readonly attempt: number;
  readonly failure?: { readonly reason: string; readonly message: string };
}

/** Small enough for a node with two cores. */
const TINY = { cpu_cores: 0.02, memory_gb: 0.05 };

function submit(command: string | readonly string[], more: object = {}): string {
  const { resources, ...rest } = more as { readonly resources?: object };
  const name = `job-${randomBytes(4).toString("hex")}`;
  const image = { container_image: "heddle/heddle:0.1.0", command };
  const spec = { name, ...image, resources: { ...TINY, ...resources }, ...rest };
  return release.heddle("jobs submit - --output name", JSON.stringify(spec)).trim();
}

const job = (id: string) => JSON.parse(release.heddle(`jobs get ${id} --output json`)) as Job;
const inState = (id: string, ...states: readonly string[]) =>
  untilFound(`the job ${id} is ${states.join(" or ")}`, () => {
    const found = job(id);
    return states.includes(found.state) ? found : undefined;
  });
const ended = (id: string) => inState(id, "succeeded", "failed");
const log = (id: string) => release.heddle(`jobs logs ${id}`);

interface Pod {
  readonly metadata: { readonly name: string; readonly uid: string; readonly annotations: object };
  readonly spec: { readonly containers: readonly { readonly resources: { limits: object } }[] };
  readonly status: {
    readonly phase: string;
    readonly resourceClaimStatuses?: readonly { readonly resourceClaimName: string }[];
  };
}

function podsOf(id: string): readonly Pod[] {
  const args = ["get", "pods", `--selector=heddle.dev/job=${id}`, "--output=json"];
  return (JSON.parse(release.kubectl(...args)) as { readonly items: readonly Pod[] }).items;
}

/** The Pods of models on GPUs. */
const modelPods = (): readonly Pod[] => {
  const args = ["get", "pods", "--selector=heddle.dev/model-of", "--output=json"];
  const { items } = JSON.parse(release.kubectl(...args)) as { readonly items: readonly Pod[] };
  return items.filter(
    ({ spec }) => "nvidia.com/gpu" in (spec.containers[0]?.resources.limits ?? {}),
  );
};

const runningPodOf = (id: string) =>
  untilFound(`the Pod of ${id} runs`, () => {
    const [pod] = podsOf(id);
    return pod?.status.phase === "Running" ? pod : undefined;
  });

/** The devices that a Pod's claims were given. */
function devicesOf({ status }: Pod): readonly string[] {
  const names = status.resourceClaimStatuses?.map((each) => each.resourceClaimName) ?? [];
  const path = "{.status.allocation.devices.results[*].device}";
  return names.map((name) => release.kubectl("get", "resourceclaim", name, `-o=jsonpath=${path}`));
}

describe.skipIf(why !== undefined)("jobs as Pods", { timeout: 600_000 }, () => {
  beforeAll(() => {
    kubectl(["create", "namespace", namespace]);
    kubectl(["label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"]);
    release.install(VALUES);
  }, 400_000);
  afterAll(() => {
    if (why === undefined) kubectl(["delete", "namespace", namespace, "--wait=false"]);
  });

  it("pods: a worker offers the devices of its node's plugin", async () => {
    const list = await untilFound("a ready worker", () => {
      const text = release.heddle("workers list --output wide");
      return /heddle-worker-0 +ready/.test(text) ? text : undefined;
    });
    expect(list).toMatch(/8/);
  });

  it("pods: a job is a restricted Pod with devices, and its log is exact", async () => {
    const line =
      'printf "a\\0b\\r\\n"; echo oh >&2; echo kept > $HEDDLE_ARTIFACT_DIR/a; echo "gpus $HEDDLE_GPUS"; sleep 4; printf end';
    const id = submit(line, { resources: { gpu_count: 2 } });
    const { metadata, spec } = await runningPodOf(id);
    expect(spec.containers[0]?.resources.limits).toMatchObject({ "nvidia.com/gpu": "2" });
    expect(metadata.annotations).toMatchObject({ team: "a" });
    expect(metadata.annotations).not.toHaveProperty("shift");
    expect(await ended(id)).toMatchObject({ state: "succeeded" });
    const lines = release.heddle(`jobs logs ${id} --stream stdout`);
    expect(lines).toBe("a\0b\r\ngpus 0,1\nend");
    expect(release.heddle(`jobs artifacts ${id}`)).toContain("a");
    await untilFound("the Pod is removed", () => podsOf(id).length === 0 || undefined);
  });

  it("pods: the tasks of a gang reach each other by name", async () => {
    const server =
      'require("net").createServer(s => s.on("error", () => 0).on("close", () => process.exit(0)).end("hello")).listen(+process.env.MASTER_PORT)';
    const client =
      'const t = setInterval(() => require("net").connect(+process.env.MASTER_PORT, process.env.MASTER_ADDR).on("error", () => 0).on("data", d => { console.log(d + " from rank 0"); process.exit(0) }), 500)';
    const line = `if [ $RANK = 0 ]; then node -e '${server}'; else node -e '${client}'; fi`;
    const id = submit(line, { tasks: 2 });
    expect(await ended(id)).toMatchObject({ state: "succeeded" });
    expect(log(id)).toContain("hello from rank 0");
  });

  it("pods: a task continues while its worker's pod is replaced", async () => {
    const id = submit("i=0; until [ -e /tmp/stop ]; do echo $i; i=$((i+1)); sleep 0.5; done");
    const before = await untilFound("lines", () =>
      /^3$/m.test(log(id)) ? podsOf(id)[0] : undefined,
    );
    release.kubectl("delete", "pod", "heddle-worker-0");
    release.kubectl("rollout", "status", "statefulset/heddle-worker", "--timeout=240s");
    const [after] = podsOf(id);
    expect(after?.metadata.uid).toBe(before.metadata.uid);
    const { name } = before.metadata;
    release.kubectl("exec", name, "--container=task", "--", "touch", "/tmp/stop");
    expect(await ended(id)).toMatchObject({ state: "succeeded", attempt: 1 });
    const lines = log(id).split("\n");
    expect(lines.length).toBeGreaterThan(10);
    expect(lines).toEqual([...Array(lines.length - 1).keys(), ""].map(String));
  });

  it.skipIf(!process.env["HEDDLE_KUBE_RIG"])(
    "pods: tasks outlive an outage of the API server, or end in it",
    { timeout: OUTAGE_SECONDS * 1_000 + 300_000 },
    async () => {
      const seconds = OUTAGE_SECONDS + 20;
      const outlives = submit(`for i in $(seq ${seconds}); do echo $i; sleep 1; done`);
      const ends = submit("sleep 5; echo done");
      for (const id of [outlives, ends]) await runningPodOf(id);
      await outage();
      expect(await ended(ends)).toMatchObject({ state: "succeeded", attempt: 1 });
      expect(log(ends)).toBe("done\n");
      expect(await ended(outlives)).toMatchObject({ state: "succeeded", attempt: 1 });
      const numbers = Array.from({ length: seconds }, (_, at) => at + 1);
      expect(log(outlives)).toBe([...numbers, ""].join("\n"));
      await untilFound("no Pod is left", () => podsOf(ends).length === 0 || undefined);
    },
  );

  it("pods: a Pod that is deleted is a lost node: the job begins again", async () => {
    const id = submit("echo up $HEDDLE_ATTEMPT; [ $HEDDLE_ATTEMPT = 2 ] || sleep 600");
    await untilFound("the first attempt", () => /up 1/.test(log(id)) || undefined);
    release.kubectl("delete", "pod", podsOf(id)[0]?.metadata.name ?? "", "--wait=false");
    expect(await ended(id)).toMatchObject({ state: "succeeded", attempt: 2 });
  });

  it("pods: a job's queue adds to its Pod", async () => {
    release.heddle("queues set night");
    const id = submit("sleep 5", { queue: "night" });
    const { metadata } = await runningPodOf(id);
    expect(metadata.annotations).toMatchObject({ team: "b", shift: "night" });
    expect(await ended(id)).toMatchObject({ state: "succeeded" });
  });

  it("pods: a cancelled job's Pod goes; a wrong image is named", async () => {
    const id = submit("sleep 600");
    await inState(id, "running");
    release.heddle(`jobs cancel ${id}`);
    await inState(id, "cancelled");
    await untilFound("its Pod is gone", () => podsOf(id).length === 0 || undefined);
    const wrong = submit("true", { container_image: "not/here:1", retry_limit: 0 });
    const { failure } = await inState(wrong, "failed");
    expect(failure).toMatchObject({ reason: "ImagePull" });
    expect(failure?.message).toContain("not/here:1");
  });

  it("pods: a model's replica is a Pod with its devices, which no job gets", async () => {
    // Of the plugin, as ever; an engine on them uses CPUs.
    release.upgrade({ ...VALUES, worker: { ...VALUES.worker, simulateGpus: "8xH100-80GB" } });
    release.heddle("models register mine --source builtin://tiny --gpus 1");
    const pod = await untilFound("the model's Pod", () => modelPods()[0]);
    expect(pod.spec.containers[0]?.resources.limits).toMatchObject({ "nvidia.com/gpu": "1" });
    const chat = () => release.heddle("chat --model mine --max-tokens 4 hello");
    await untilFound("an answer", () => chat() || undefined);
    const waits = submit("true", { resources: { gpu_count: 8 } });
    expect(release.heddle(`jobs explain ${waits}`)).toMatch(/gpu/i);
    expect(job(waits).state).toBe("pending");
    release.kubectl("delete", "pod", pod.metadata.name, "--wait=false");
    await untilFound("another Pod", () =>
      modelPods().find(({ metadata }) => metadata.uid !== pod.metadata.uid),
    );
    await untilFound("an answer of it", () => chat() || undefined);
    release.heddle("models remove mine");
    expect(await ended(waits)).toMatchObject({ state: "succeeded" });
    await untilFound("its Pod is gone", () => modelPods().length === 0 || undefined);
  });

  it("pods: each GPU is a claim of its own, and none is claimed twice", async () => {
    const driver = await DeviceDriver.start({ namespace, template: "one-gpu", devices: 2 });
    try {
      release.upgrade(BY_CLAIMS);
      const both = submit('echo "gpus $HEDDLE_GPUS"; sleep 15', { resources: { gpu_count: 2 } });
      const pod = await runningPodOf(both);
      expect([...devicesOf(pod)].sort()).toEqual(["gpu-0", "gpu-1"]);
      expect(pod.spec.containers[0]?.resources.limits).not.toHaveProperty("nvidia.com/gpu");
      const next = submit("true", { resources: { gpu_count: 1 } });
      expect(job(next).state).toBe("pending");
      expect(await ended(both)).toMatchObject({ state: "succeeded" });
      expect(log(both)).toBe("gpus 0,1\n");
      expect(await ended(next)).toMatchObject({ state: "succeeded" });
      await untilFound("the claims are gone", () => {
        return release.kubectl("get", "resourceclaims", "--output=name") === "" || undefined;
      });
      expect(driver.prepared()).toBe(3);
    } finally {
      driver.stop();
    }
  });
});
