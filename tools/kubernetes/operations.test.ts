// holds: kube-upgrade, kube-drain, kube-restore

import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { kubectl, untilFound } from "./kube-cluster.ts";
import { ChartRelease, SMALL_PARTS, whyNoRelease } from "./release.ts";

const why = whyNoRelease();
if (why !== undefined) console.log(`tests of a running release are skipped: ${why}`);

const namespace = `operations-${randomBytes(4).toString("hex")}`;
const release = new ChartRelease(namespace);
const k = (...args: readonly string[]) => release.kubectl(...args);
const values = (
  change: { readonly masters?: number; readonly mark?: string; readonly whenScaled?: string } = {},
) => {
  const podAnnotations = { mark: change.mark ?? "first" };
  const persistence = {
    ...SMALL_PARTS.master.persistence,
    whenScaled: change.whenScaled ?? "Delete",
  };
  return {
    ...SMALL_PARTS,
    master: { ...SMALL_PARTS.master, replicas: change.masters ?? 3, persistence, podAnnotations },
    worker: { ...SMALL_PARTS.worker, replicas: 2, taskIsolation: "optional", podAnnotations },
    operator: { resources: { requests: { cpu: "10m", memory: "64Mi" } } },
  };
};

const upgrade = (next: object) => release.upgrade(next);

interface Group {
  readonly leader: string | null;
  readonly quorum: { readonly voters: number; readonly has_quorum: boolean };
}

const groupOf = (voters: number) =>
  untilFound(
    `a group of ${voters} masters`,
    () => {
      const found = JSON.parse(release.heddle("cluster status --output json")) as Group;
      const isWhole = found.quorum.voters === voters && found.quorum.has_quorum;
      return isWhole && found.leader ? found.leader : undefined;
    },
    240_000,
  );

/** Calls a model through the Service for ever, with the retries that SDKs make by default. */
const CALLER = `
const counts = { answered: 0, lost: 0, retried: 0 };
const body = JSON.stringify({ model: "FamilyA-1-2B", max_tokens: 8, messages: [{ role: "user", content: "hello" }] });
const headers = { "content-type": "application/json", authorization: "Bearer " + process.env.KEY.trim() };
const wait = (ms) => new Promise((go) => setTimeout(go, ms));
async function call() {
  for (let tries = 0; ; tries++) {
    let fault;
    try {
      const reply = await fetch("http://heddle:80/api/v1/chat/completions", { method: "POST", headers, body, signal: AbortSignal.timeout(60_000) });
      const text = await reply.text();
      if (reply.ok) return void counts.answered++;
      fault = reply.status + " " + text.slice(0, 300);
      if (reply.status < 500 && ![408, 409, 429].includes(reply.status)) tries = 2;
    } catch (error) {
      fault = String(error.cause ?? error);
    }
    if (tries === 2) return void (counts.lost++, console.log(new Date().toISOString(), "lost", fault));
    counts.retried++;
    await wait(500 * 2 ** tries * (1 - Math.random() / 4));
  }
}
for (let lane = 0; lane < 3; lane++) (async () => { for (;;) { await call(); await wait(50); } })();
setInterval(() => console.log(JSON.stringify(counts)), 1_000);
`;

interface Counts {
  readonly answered: number;
  readonly lost: number;
  readonly retried: number;
}

function calls(): Counts {
  const lines = k("logs", "caller", "--tail=50").trim().split("\n");
  const counts = lines.findLast((line) => line.startsWith("{"));
  if (counts === undefined) throw new Error(`the caller says nothing: ${lines.join("\n")}`);
  return JSON.parse(counts) as Counts;
}

function startCaller(): void {
  const key = { secretKeyRef: { name: "heddle-cluster", key: "bootstrap-key" } };
  const container = {
    name: "caller",
    image: "heddle/heddle:0.1.0",
    imagePullPolicy: "IfNotPresent",
    command: ["node", "--eval", CALLER],
    env: [{ name: "KEY", valueFrom: key }],
  };
  const spec = { restartPolicy: "Never", enableServiceLinks: false, containers: [container] };
  const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "caller", namespace }, spec };
  kubectl(["apply", "--filename", "-"], JSON.stringify(pod));
}

/** Changes the release while calls and jobs run: none of them is lost. */
async function underLoad(change: () => void): Promise<void> {
  const before = calls();
  const ids = Array.from({ length: 3 }, (_, at) => {
    const spec = { name: `load-${before.answered}-${at}`, command: "sleep 20; echo done" };
    return JSON.parse(release.heddle("jobs submit - --output json", JSON.stringify(spec))).job_id;
  });
  change();
  await groupOf(3);
  for (const id of ids) {
    const state = await untilFound(
      `the end of ${id}`,
      () => {
        const job = JSON.parse(release.heddle(`jobs get ${id} --output json`));
        return job.ended_at ? (job.state as string) : undefined;
      },
      240_000,
    );
    expect(state).toBe("succeeded");
  }
  const after = calls();
  expect(k("logs", "caller")).not.toMatch(/ lost /);
  expect(after.lost).toBe(0);
  expect(after.answered).toBeGreaterThan(before.answered + 20);
  console.log(`calls while it changed: ${JSON.stringify(after)}, from ${JSON.stringify(before)}`);
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
  upgrade(values({ whenScaled: "Retain" }));
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
  upgrade(values());
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
    startCaller();
    await untilFound("answers", () => calls().answered > 10 || undefined);
  }, 600_000);
  afterAll(() => {
    kubectl(["delete", "namespace", namespace, "--wait=false"]);
  });

  it("release: an upgrade under load loses no call and no job", async () => {
    await underLoad(() => upgrade(values({ mark: "second" })));
    expect(
      k("get", "pod", "heddle-master-0", "--output=jsonpath={.metadata.annotations.mark}"),
    ).toBe("second");
  });

  it("release: a rollback under load loses no call and no job", async () => {
    await underLoad(() =>
      release.helm(["rollback", "heddle", "1", "--wait", "--timeout", "400s"], {}),
    );
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
    const { answered } = calls();
    await untilFound("answers again", () => calls().answered > answered || undefined);
  });

  it("release: three masters become one and three again", async () => {
    upgrade(values({ masters: 1 }));
    await groupOf(1);
    upgrade(values({ masters: 3 }));
    await groupOf(3);
    const { answered } = calls();
    await untilFound("answers", () => calls().answered > answered || undefined);
  });

  it("release: a backup is restored by the runbook, with its jobs and keys", async () => {
    const job = JSON.parse(
      release.heddle(
        "jobs submit - --output json",
        JSON.stringify({ name: "kept", command: "true" }),
      ),
    ).job_id as string;
    await untilFound(
      "the end of the job",
      () => /SUCCEEDED|succeeded/.test(release.heddle(`jobs get ${job}`)) || undefined,
    );
    restoreByRunbook();
    await groupOf(3);
    expect(release.heddle(`jobs get ${job}`)).toContain("kept");
    const { answered } = calls();
    await untilFound("answers again", () => calls().answered > answered || undefined, 240_000);
  });
});
