// holds: kube-upgrade, kube-drain, kube-restore, kube-more-masters, kube-own-namespace

import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { kubectl, untilFound } from "./kube-cluster.ts";
import { ReleaseLoad } from "./load.ts";
import { ChartRelease, SMALL_PARTS, whyNoRelease } from "./release.ts";

const why = whyNoRelease();
if (why !== undefined) console.log(`tests of a running release are skipped: ${why}`);

const namespace = `operations-${randomBytes(4).toString("hex")}`;
const release = new ChartRelease(namespace);
const k = (...args: readonly string[]) => release.kubectl(...args);
const values = (change: { readonly masters?: number; readonly mark?: string } = {}) => {
  const podAnnotations = { mark: change.mark ?? "first" };
  return {
    ...SMALL_PARTS,
    master: { ...SMALL_PARTS.master, replicas: change.masters ?? 3, podAnnotations },
    worker: { ...SMALL_PARTS.worker, replicas: 2, taskIsolation: "optional", podAnnotations },
    operator: { resources: { requests: { cpu: "10m", memory: "64Mi" } } },
  };
};

const upgrade = (next: object) => release.upgrade(next);
/** After kubectl has scaled something: Helm 4 asks whose the number is. */
const takeBack = (next: object) => release.upgrade(next, "--force-conflicts");

const load = new ReleaseLoad(release);
const groupOf = (voters: number) => load.groupOf(voters);

/** The id of a new job. */
function submit(spec: object): string {
  const text = release.heddle("jobs submit - --output json", JSON.stringify(spec));
  return (JSON.parse(text) as { readonly job_id: string }).job_id;
}

/** Resolves when the master of that pod has both workers. */
function areAttachedTo(pod: string): Promise<string> {
  return untilFound(`both workers at ${pod}`, () => {
    const list = release.heddleOf(pod, "workers list");
    return list.match(/heddle-worker-\d +ready/g)?.length === 2 ? list : undefined;
  });
}

/** What docs/runbooks/backup.md says for Kubernetes. */
function restoreByRunbook(): void {
  release.heddle("cluster backup /tmp/state.backup");
  const pod = k(
    "get",
    "pods",
    "--selector=app.kubernetes.io/component=master",
    "--output=jsonpath={.items[0].metadata.name}",
  );
  const text = k("exec", pod, "--container=master", "--", "base64", "/tmp/state.backup");
  k("scale", "deployment/heddle-operator", "--replicas=0");
  k("scale", "statefulset/heddle-master", "--replicas=0");
  k(
    "wait",
    "--for=delete",
    "pod",
    "--selector=app.kubernetes.io/component=master",
    "--timeout=120s",
  );
  k("delete", "pvc", "data-heddle-master-1", "data-heddle-master-2");
  kubectl(["apply", "--filename", "-"], JSON.stringify(RESTORER));
  k("wait", "--for=condition=Ready", "pod/restore", "--timeout=120s");
  const address = `heddle-master-0.heddle-masters.${namespace}.svc.cluster.local:8081`;
  const steps = [
    "base64 -d > /tmp/state.backup",
    "find /data -mindepth 1 -delete",
    `heddle cluster restore /tmp/state.backup --data /data --name heddle-master-0 --address ${address} --secrets-key-file /run/heddle/secrets/secrets-key`,
  ];
  kubectl(
    ["--namespace", namespace, "exec", "--stdin", "restore", "--", "sh", "-ec", steps.join("; ")],
    text,
  );
  k("delete", "pod", "restore", "--wait=true");
  k("scale", "statefulset/heddle-master", "--replicas=1");
  k("rollout", "status", "statefulset/heddle-master", "--timeout=240s");
  takeBack(values());
}

const RESTORER = {
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "restore", namespace },
  spec: {
    restartPolicy: "Never",
    securityContext: { runAsUser: 10001, runAsGroup: 10001, fsGroup: 10001 },
    containers: [
      {
        name: "restore",
        image: "heddle/heddle:0.1.0",
        imagePullPolicy: "IfNotPresent",
        command: ["sleep", "3600"],
        volumeMounts: [
          { name: "data", mountPath: "/data" },
          { name: "secrets", mountPath: "/run/heddle/secrets" },
        ],
      },
    ],
    volumes: [
      { name: "data", persistentVolumeClaim: { claimName: "data-heddle-master-0" } },
      { name: "secrets", secret: { secretName: "heddle-cluster", defaultMode: 0o440 } },
    ],
  },
};

describe.skipIf(why !== undefined)("a running release", { timeout: 900_000 }, () => {
  beforeAll(async () => {
    kubectl(["create", "namespace", namespace]);
    release.install(values());
    await groupOf(3);
    await load.start();
  }, 600_000);
  afterAll(() => {
    kubectl(["delete", "namespace", namespace, "--ignore-not-found", "--wait=false"]);
  });

  it("release: an upgrade under load loses no call and no job", async () => {
    await load.during(() => upgrade(values({ mark: "second" })));
    expect(
      k("get", "pod", "heddle-master-0", "--output=jsonpath={.metadata.annotations.mark}"),
    ).toBe("second");
  });

  it("release: a rollback under load loses no call and no job", async () => {
    await load.during(() => release.rollback(1));
    expect(
      k("get", "pod", "heddle-master-0", "--output=jsonpath={.metadata.annotations.mark}"),
    ).toBe("first");
  });

  it("release: kubectl drain takes one master at a time, and the others answer", async () => {
    const node = k("get", "pod", "heddle-master-0", "--output=jsonpath={.spec.nodeName}");
    const flags = ["--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=40s"];
    const own = "--pod-selector=app.kubernetes.io/component in (master,worker)";
    try {
      expect(() => kubectl(["drain", node, own, ...flags])).toThrow(/disruption budget/);
      const evicted = k(
        "get",
        "pods",
        "--selector=app.kubernetes.io/component=master",
        "--field-selector=status.phase=Pending",
        "--output=name",
      );
      expect(evicted.trim().split("\n")).toHaveLength(1);
      expect(JSON.parse(release.heddle("cluster status --output json")).quorum.has_quorum).toBe(
        true,
      );
    } finally {
      kubectl(["uncordon", node]);
    }
    k("rollout", "status", "statefulset/heddle-master", "--timeout=240s");
    k("rollout", "status", "statefulset/heddle-worker", "--timeout=240s");
    await groupOf(3);
    await load.answers();
  });

  it("release: kubectl scales masters beyond the chart's number, and back", async () => {
    upgrade(values({ masters: 1 }));
    await groupOf(1);
    k("scale", "heddlecluster/heddle", "--replicas=3");
    await groupOf(3);
    k("wait", "--for=condition=Ready", "heddlecluster/heddle", "--timeout=240s");
    await areAttachedTo("heddle-master-1");
    await areAttachedTo("heddle-master-2");
    // The only one that the chart's values name.
    k("delete", "pod", "heddle-master-0", "--force", "--grace-period=0");
    await load.answers();
    k("rollout", "status", "statefulset/heddle-master", "--timeout=240s");
    await groupOf(3);
    k("scale", "heddlecluster/heddle", "--replicas=1");
    await groupOf(1);
    k("wait", "--for=condition=Ready", "heddlecluster/heddle", "--timeout=240s");
    await load.answers();
  });

  it("release: one master becomes three again by the chart", async () => {
    takeBack(values({ masters: 3 }));
    await groupOf(3);
    await load.answers();
  });

  it("release: masters that kubectl scales to none say so, and come back", async () => {
    const until = (phase: string) =>
      k("wait", `--for=jsonpath={.status.phase}=${phase}`, "hc/heddle", "--timeout=240s");
    const job = submit({ name: "before", command: "true" });
    k("scale", "statefulset/heddle-master", "--replicas=0");
    until("Unavailable");
    const shown = k("get", "hc", "heddle", "--output=jsonpath={.spec.masters} {.status.message}");
    expect(shown).toContain("3 the masters' StatefulSet has 0 replicas");
    k("scale", "statefulset/heddle-master", "--replicas=3");
    until("Ready");
    await groupOf(3);
    expect(release.heddle(`jobs get ${job}`)).toContain("before");
    await load.answers();
  });

  it("release: a backup is restored by the runbook, with its jobs and keys", async () => {
    const job = submit({ name: "kept", command: "true" });
    await untilFound(
      "the end of the job",
      () => /SUCCEEDED|succeeded/.test(release.heddle(`jobs get ${job}`)) || undefined,
    );
    restoreByRunbook();
    await groupOf(3);
    expect(release.heddle(`jobs get ${job}`)).toContain("kept");
    await load.answers();
  });

  it("release: its namespace is deleted with its jobs and models", async () => {
    const apply = (kind: string, spec: object) => {
      const metadata = { name: "last", namespace };
      const object = { apiVersion: "heddle.dev/v1alpha1", kind, metadata, spec };
      kubectl(["apply", "--filename", "-"], JSON.stringify(object));
    };
    apply("TrainingJob", { command: "sleep 600" });
    apply("InferenceModel", { source: "builtin://tiny", replicas: 0 });
    // The restored cluster starts no job before its predecessor's leases have ended.
    k("wait", "--for=condition=Running", "--timeout=300s", "tj/last");
    k("wait", "--for=condition=Accepted", "--timeout=60s", "im/last");
    kubectl(["delete", "namespace", namespace, "--wait", "--timeout=240s"]);
  });
});
