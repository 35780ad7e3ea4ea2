// holds: task-pod

import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { until } from "@heddle/base/testing/until";
import type { TaskSpec } from "@heddle/contracts/generated/heddle/v1/TaskSpec";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { KubernetesDouble, whyNoPods } from "../../../test/kubernetes-double.ts";
import { type LeaderSession, TestLeader, taskId } from "../../../test/test-leader.ts";

const why = whyNoPods();
if (why !== undefined) console.log(`tasks in Pods are not tested: ${why}`);

const spec = { executor: "container", containerImage: "team/image:1" };
const sh = (line: string): Partial<TaskSpec> => ({ ...spec, command: ["/bin/sh", "-c", line] });

/** An address on loopback where these bytes are. */
async function servedFile(bytes: Buffer): Promise<string> {
  const server = createServer((_request, reply) => reply.end(bytes)).listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe.skipIf(why !== undefined)("a worker in Kubernetes", () => {
  const leader = new TestLeader();
  const kubernetes = new KubernetesDouble(leader.folder);
  let session: LeaderSession;
  const templateFile = join(leader.folder, "template.json");
  const profilesFile = join(leader.folder, "profiles.json");
  const queuesFile = join(leader.folder, "queues.json");
  const gpus = { by: "plugin", resource: "nvidia.com/gpu" } as const;
  const more = { gpus, templateFile, profilesFile, queuesFile };
  const weightsHosts = ["127.0.0.1"];
  const startWorker = () => leader.startWorker({ pods: kubernetes.settings(more), weightsHosts });
  let worker: Awaited<ReturnType<typeof startWorker>>;
  beforeAll(async () => {
    writeFileSync(templateFile, JSON.stringify({ metadata: { annotations: { team: "a" } } }));
    const mount = { name: "sets", mountPath: "/sets", readOnly: true };
    const spec = { serviceAccountName: "reader", containers: [{ volumeMounts: [mount] }] };
    writeFileSync(profilesFile, JSON.stringify({ reader: { spec } }));
    const metadata = { annotations: { team: "night", shift: "b" } };
    const tolerations = [{ key: "night", operator: "Exists" }];
    writeFileSync(queuesFile, JSON.stringify({ night: { metadata, spec: { tolerations } } }));
    await Promise.all([leader.listen(), kubernetes.listen()]);
    worker = await startWorker();
    session = leader.open();
  });
  afterAll(async () => {
    await leader.close();
    kubernetes.close();
  });

  it("pods: a worker offers what its node has for Pods, and no processes", () => {
    expect(leader.register).toMatchObject({
      executors: ["container"],
      hardware: { limits: [{ cpuMilli: 3_500, memoryBytes: 7 * 2 ** 30 }] },
    });
    const gpus = leader.register?.hardware?.gpus ?? [];
    expect(gpus).toHaveLength(4);
    expect(leader.register?.labels).toMatchObject({
      "heddle/profile-reader": "true",
      "heddle/feature-inputs": "true",
    });
    expect(gpus[0]).toMatchObject({ name: "NVIDIA-H100", memoryBytes: 81_559 * 2 ** 20 });
  });

  it("pods: code, lines, files and log of a program return", async () => {
    const lines = [
      'echo "$GREETING from rank $RANK $IMAGE"; echo oh >&2; echo again > /dev/stderr',
      "echo kept > $HEDDLE_CHECKPOINT_DIR/c1; echo '{\"step\":7}' >> $HEDDLE_PROGRESS_FILE",
      "[ $HOME != / ] && echo own > $HOME/x; head -c 300000 /dev/zero; printf end; exit 7",
    ];
    const what = { ...sh(lines.join("\n")), environment: { GREETING: "two\nlines" } };
    await session.start(what, taskId(0), [2, 3]);
    const { exit } = await session.reaches("exited", taskId(0));
    expect(exit).toMatchObject({ exitCode: 7, reason: "ExitCode" });
    await until("the log was received", () => leader.isComplete(0));
    const log = leader.log(0);
    expect(log.startsWith("two\nlines from rank 0 yes\n")).toBe(true);
    expect(log.endsWith("\0end")).toBe(true);
    expect(log).toHaveLength(300_000 + "two\nlines from rank 0 yes\nend".length);
    expect(leader.log(0, "stderr")).toBe("oh\nagain\n");
    expect(session.progressLines.at(-1)).toBe('{"step":7}');
    expect(existsSync(join(leader.folder, "worker/checkpoints/job_A/c1"))).toBe(true);
    expect(kubernetes.names).toEqual([]);
  });

  it("pods: inputs lie in the task's folder; an unmet condition makes no Pod", async () => {
    const bytes = Buffer.from("0.25");
    const host = await servedFile(bytes);
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    const inputs = [{ name: "score", source: `${host}/score`, sha256, bytes: 0, skipped: false }];
    const what = { ...sh('cat "$HEDDLE_INPUT_DIR/score"'), inputs };
    await session.start(what, taskId(11));
    const { exit } = await session.reaches("exited", taskId(11));
    expect(exit).toMatchObject({ exitCode: 0, reason: "" });
    await until("the log was received", () => leader.isComplete(11));
    expect(leader.log(11)).toBe("0.25");
    const made = kubernetes.made.length;
    const when = JSON.stringify([{ input: "score", at_least: 0.5 }]);
    await session.lease({ ...what, when }, taskId(12));
    session.send({ start: { task: taskId(12), peers: [] } });
    const skipped = await session.reaches("exited", taskId(12));
    expect(skipped.exit).toMatchObject({ message: "skipped: score is 0.25, below 0.5" });
    expect(kubernetes.made).toHaveLength(made);
  });

  it("pods: a Pod is bound to the node, restricted, and asks the plugin for devices", () => {
    const [pod] = kubernetes.made;
    expect(pod?.metadata).toMatchObject({
      name: "heddle-a-1-0",
      labels: { "heddle.dev/job": "job_A", "heddle.dev/rank": "0" },
      ownerReferences: [{ kind: "DaemonSet", name: "w", controller: false }],
    });
    expect(JSON.stringify(pod?.spec["affinity"])).toContain(
      '{"key":"metadata.name","operator":"In","values":["node-1"]}',
    );
    const [container] = pod?.spec.containers ?? [];
    expect(container?.resources?.limits).toMatchObject({ "nvidia.com/gpu": "2" });
    expect(container?.env).toEqual([]);
    expect(pod?.spec).toMatchObject({
      automountServiceAccountToken: false,
      imagePullSecrets: [{ name: "registry" }],
      tolerations: [{ key: "gpu" }],
    });
    const paths = container?.volumeMounts?.map(({ subPath }) => subPath);
    expect(paths).toContain("worker/jobs/job_A/1.0/work");
    expect(paths).not.toContain("worker/jobs/job_A/1.0");
  });

  it("pods: a profile adds to the template of all Pods; an unknown one is named", async () => {
    const what = { ...sh("true"), profile: "reader", shmBytes: 2 ** 20 };
    await session.start(what, taskId(9));
    await session.reaches("exited", taskId(9));
    const pod = kubernetes.made.at(-1);
    expect(pod?.metadata.annotations).toMatchObject({ team: "a" });
    expect(pod?.spec).toMatchObject({ serviceAccountName: "reader" });
    expect(pod?.spec.volumes?.find(({ name }) => name === "shm")).toMatchObject({
      emptyDir: { medium: "Memory", sizeLimit: "1048576" },
    });
    const paths = pod?.spec.containers[0]?.volumeMounts?.map(({ mountPath }) => mountPath);
    expect(paths).toEqual(expect.arrayContaining(["/sets", "/dev/shm"]));
    await session.lease({ ...sh("true"), profile: "writer" }, taskId(10));
    session.send({ start: { task: taskId(10), peers: [] } });
    const { exit } = await session.reaches("exited", taskId(10));
    expect(exit?.message).toContain('no profile "writer" is among');
  });

  it("pods: those of a queue have what the worker adds for it, before a profile's", async () => {
    const what = { ...sh("true"), profile: "reader", queue: "night" };
    await session.start(what, taskId(13));
    await session.reaches("exited", taskId(13));
    const pod = kubernetes.made.at(-1);
    expect(pod?.metadata.annotations).toMatchObject({ team: "night", shift: "b" });
    expect(pod?.spec).toMatchObject({
      serviceAccountName: "reader",
      tolerations: [
        { key: "gpu", operator: "Exists" },
        { key: "night", operator: "Exists" },
      ],
    });
    await session.start({ ...sh("true"), queue: "day" }, taskId(14));
    await session.reaches("exited", taskId(14));
    expect(kubernetes.made.at(-1)?.spec["tolerations"]).toHaveLength(1);
  });

  it("pods: devices come by claims where the worker has a template of one", async () => {
    const own = new TestLeader();
    const cluster = new KubernetesDouble(own.folder);
    onTestFinished(async () => {
      await own.close();
      cluster.close();
    });
    await Promise.all([own.listen(), cluster.listen()]);
    const gpus = { by: "claim", template: "one-gpu", count: 3 } as const;
    await own.startWorker({ pods: cluster.settings({ gpus }) });
    expect(own.register?.hardware?.gpus).toHaveLength(3);
    expect(own.register?.hardware?.gpus?.[0]).toMatchObject({ name: "NVIDIA-H100" });
    const claiming = own.open();
    await claiming.start(sh("true"), taskId(0), [0, 2]);
    await claiming.reaches("exited", taskId(0));
    await claiming.start(sh("true"), taskId(1));
    await claiming.reaches("exited", taskId(1));
    const [both, none] = cluster.made.map(({ spec }) => spec);
    expect(both?.["resourceClaims"]).toEqual([
      { name: "gpu-0", resourceClaimTemplateName: "one-gpu" },
      { name: "gpu-1", resourceClaimTemplateName: "one-gpu" },
    ]);
    const { claims, limits = {} } = both?.containers[0]?.resources ?? {};
    expect(claims).toEqual([{ name: "gpu-0" }, { name: "gpu-1" }]);
    expect(Object.keys(limits)).not.toContain("nvidia.com/gpu");
    expect(none?.["resourceClaims"]).toBeUndefined();
  });

  it("pods: a stop asks for a checkpoint, then the program ends", async () => {
    const line =
      'trap \'echo {\\"checkpoint\\":\\"c2\\",\\"step\\":3} >> $HEDDLE_PROGRESS_FILE; touch $HEDDLE_CHECKPOINT_DIR/c2\' USR1; trap "exit 0" TERM; echo up; while :; do sleep 0.1; done';
    await session.start(sh(line), taskId(1));
    await until("the program is up", () => leader.log(1).includes("up"));
    session.send({ stop: { task: taskId(1), checkpoint: true, graceMs: 20_000, why: "test" } });
    const { exit, progress } = await session.reaches("exited", taskId(1));
    expect(exit).toMatchObject({ asked: true, message: "stopped: test" });
    expect(progress?.line).toContain('"checkpoint":"c2"');
  });

  it("pods: an image that cannot be pulled, and a program that is not there, are named", async () => {
    kubernetes.missingImages.add("no/image:1");
    await session.lease({ ...sh("true"), containerImage: "no/image:1" }, taskId(2));
    session.send({ start: { task: taskId(2), peers: [] } });
    const { exit } = await session.reaches("exited", taskId(2));
    expect(exit).toMatchObject({ reason: "ImagePull" });
    expect(exit?.message).toContain("no/image:1 could not be pulled");
    await session.lease({ ...spec, command: ["no-program"] }, taskId(3));
    session.send({ start: { task: taskId(3), peers: [] } });
    const { exit: second } = await session.reaches("exited", taskId(3));
    expect(second?.message).toMatch(/the image has no program "no-program"/);
    expect(second?.reason).toBe("LaunchFailed");
    await until("both Pods are removed", () => kubernetes.names.length === 0);
  });

  it("pods: a refusal of the API server and a missing command are the task's end", async () => {
    kubernetes.refusals.push({ status: 403, message: "exceeded quota: small" });
    await session.lease(sh("true"), taskId(4));
    session.send({ start: { task: taskId(4), peers: [] } });
    const { exit } = await session.reaches("exited", taskId(4));
    expect(exit).toMatchObject({ reason: "LaunchFailed" });
    expect(exit?.message).toContain("exceeded quota: small");
    await session.lease({ ...spec, command: [] }, taskId(5));
    session.send({ start: { task: taskId(5), peers: [] } });
    const { exit: second } = await session.reaches("exited", taskId(5));
    expect(second).toMatchObject({ reason: "Unsatisfiable" });
  });

  it("pods: a Pod that Kubernetes deletes is a lost node, not the program's fault", async () => {
    await session.start(sh("echo up; sleep 600"), taskId(6));
    await until("the program is up", () => leader.log(6).includes("up"));
    kubernetes.evict("heddle-a-1-6");
    const { exit } = await session.reaches("exited", taskId(6));
    expect(exit).toMatchObject({ reason: "NodeLost", signal: "SIGTERM" });
    expect(exit?.message).toContain("its Pod was deleted or evicted");
  });

  it("pods: a worker that is killed, or ended, and started again takes its Pods over", async () => {
    const line = "i=0; while [ $i -lt 80 ]; do echo $i; i=$((i+1)); sleep 0.1; done";
    await session.start(sh(line), taskId(7));
    await until("there are lines", () => leader.log(7).includes("5\n"));
    for (const [term, signal] of [[2, "SIGKILL"] as const, [3, "SIGTERM"] as const]) {
      const ended = once(worker, "exit");
      worker.kill(signal);
      session.close();
      await ended;
      worker = await startWorker();
      session = leader.open(term);
      await session.reaches("running", taskId(7));
    }
    const { exit } = await session.reaches("exited", taskId(7));
    expect(exit).toMatchObject({ exitCode: 0, reason: "" });
    await until("the log was received", () => leader.isComplete(7));
    expect(leader.log(7)).toBe([...Array(80).keys(), ""].join("\n"));
    expect(kubernetes.made.filter(({ metadata }) => metadata.name === "heddle-a-1-7")).toHaveLength(
      1,
    );
  });

  it("pods: the program ends with the lease of a worker that is killed", async () => {
    const own = new TestLeader();
    const cluster = new KubernetesDouble(own.folder);
    onTestFinished(async () => {
      await own.close();
      cluster.close();
    });
    await Promise.all([own.listen(), cluster.listen()]);
    const killed = await own.startWorker({ pods: cluster.settings() });
    const early = own.open(1, 10_000);
    await early.start(sh("while :; do date +%s; sleep 0.1; done"));
    await until("there are lines", () => own.log() !== "");
    killed.kill("SIGKILL");
    const directory = join(own.folder, "worker/jobs/job_A/1.0");
    const isEnded = () =>
      readFileSync(join(directory, "pod/events.jsonl"), "utf8").includes('"end"');
    await until("the runner has ended", isEnded);
    const { size } = statSync(join(directory, "logs/stdout"));
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(statSync(join(directory, "logs/stdout")).size).toBe(size);
    await own.startWorker({ pods: cluster.settings() });
    const { exit } = await own.open(2).reaches("exited");
    expect(exit).toMatchObject({ reason: "NodeLost" });
    await until("its Pod is removed", () => cluster.names.length === 0);
    const runners = readdirSync(join(own.folder, "worker/pods"));
    expect(runners.filter((name) => name.startsWith("runner-"))).toHaveLength(1);
  });
});
