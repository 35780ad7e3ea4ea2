// holds: kube-previous

import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { kubectl, untilFound } from "./kube-cluster.ts";
import { ReleaseLoad } from "./load.ts";
import { ChartRelease, SMALL_PARTS, whyNoRelease } from "./release.ts";

const previous = process.env["HEDDLE_KUBE_PREVIOUS"];
const NO_PREVIOUS =
  "HEDDLE_KUBE_PREVIOUS names no folder that deploy/images/build-previous.sh has made";
const why = whyNoRelease() ?? (previous ? undefined : NO_PREVIOUS);
if (why !== undefined) console.log(`tests of an upgrade are skipped: ${why}`);

const namespace = `upgrade-${randomBytes(4).toString("hex")}`;
const release = new ChartRelease(namespace);
const load = new ReleaseLoad(release);
const k = (...args: readonly string[]) => release.kubectl(...args);

type Build = "heddle" | "heddle-previous";

const values = (build: Build) => ({
  image: { repository: `${build}/heddle` },
  master: { ...SMALL_PARTS.master, replicas: 3 },
  worker: {
    ...SMALL_PARTS.worker,
    image: { repository: `${build}/heddle-worker` },
    replicas: 2,
    taskIsolation: "optional",
  },
  // An earlier chart's operator had no startup probe: a loaded node ended it again and again.
  operator: {
    enabled: build === "heddle",
    resources: { requests: { cpu: "10m", memory: "64Mi" } },
  },
});

/** How many masters or workers stay as they are at an upgrade: those with lower numbers. */
function holdBack(part: "master" | "worker", count: number): void {
  const updateStrategy = { rollingUpdate: { partition: count } };
  const patch = JSON.stringify({ spec: { updateStrategy } });
  k("patch", "statefulset", `heddle-${part}`, "--type=merge", "--patch", patch);
}

const buildOf = (pod: string) =>
  k("get", "pod", pod, "--output=jsonpath={.spec.containers[0].image}").split("/")[0];

/** Resolves when this many workers are ready. */
function readyWorkers(count: number): Promise<string> {
  return untilFound(`${count} ready workers`, () => {
    const text = release.heddle("workers list");
    return text.match(/heddle-worker-\d +ready/g)?.length === count ? text : undefined;
  });
}

describe.skipIf(why !== undefined)("the previous build", { timeout: 900_000 }, () => {
  let version = 0;
  let kept = "";
  beforeAll(async () => {
    kubectl(["create", "namespace", namespace]);
    release.install(values("heddle-previous"), join(previous ?? "", "chart"));
    await load.groupOf(3);
    await load.start();
    version = load.group().cluster_version;
    const spec = JSON.stringify({ name: "kept", command: "echo kept" });
    kept = JSON.parse(release.heddle("jobs submit - --output json", spec)).job_id as string;
  }, 600_000);
  afterAll(() => {
    kubectl(["delete", "namespace", namespace, "--wait=false"]);
  });

  it("upgrade: one new master among older ones is taken back under load", async () => {
    holdBack("master", 2);
    holdBack("worker", 2);
    await load.during(() => release.upgrade(values("heddle")));
    expect(["heddle-master-2", "heddle-master-0", "heddle-worker-0"].map(buildOf)).toEqual([
      "heddle",
      "heddle-previous",
      "heddle-previous",
    ]);
    expect(load.group().cluster_version).toBe(version);
    await load.during(() => release.rollback(1));
    expect(buildOf("heddle-master-2")).toBe("heddle-previous");
  });

  it("upgrade: all masters under load, which raises the cluster version", async () => {
    holdBack("master", 0);
    await load.during(() => release.upgrade(values("heddle")));
    await untilFound("the cluster version rises", () => {
      return load.group().cluster_version > version || undefined;
    });
    expect(["heddle-master-0", "heddle-worker-0"].map(buildOf)).toEqual([
      "heddle",
      "heddle-previous",
    ]);
    expect(release.heddle(`jobs get ${kept}`)).toMatch(/succeeded/i);
    expect(release.heddle(`jobs logs ${kept}`)).toBe("kept\n");
  });

  it("upgrade: then the workers under load", async () => {
    await load.during(() => {
      holdBack("worker", 0);
      k("rollout", "status", "statefulset/heddle-worker", "--timeout=400s");
    });
    expect(buildOf("heddle-worker-0")).toBe("heddle");
    await readyWorkers(2);
    expect(release.heddle(`jobs logs ${kept}`)).toBe("kept\n");
  });
});
