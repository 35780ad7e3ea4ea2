// holds: kube-habits

import { randomBytes } from "node:crypto";
import type { Heddle } from "@heddle/client/heddle";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import type { DrivenProcess } from "../../apps/cli/src/testing/driven-process.ts";
import { define, kubectl, untilFound, whyNoCluster } from "./kube-cluster.ts";
import { CHART, helm, kubeTool, NO_HELM } from "./kube-tools.ts";
import { DEFINITIONS, LocalHeddle } from "./testing/local-heddle.ts";

const why = whyNoCluster() ?? (kubeTool("helm") ? undefined : NO_HELM);
if (why !== undefined) console.log(`tests of kubectl's habits are skipped: ${why}`);

const namespace = `habits-${randomBytes(4).toString("hex")}`;
const ROLES = ["--show-only", "templates/aggregate-roles.yaml", "--namespace", namespace];
let local: LocalHeddle;
let operator: DrivenProcess;
let heddle: Heddle;
let roles: string;

/** What a user might write; the operator knows better. */
const STATUS_PATCH = ["--type=merge", "--patch", '{"status":{"phase":"Succeeded"}}'];

const k = (...args: readonly string[]) => kubectl(["--namespace", namespace, ...args]);
const field = (name: string, path: string) => k("get", "tj", name, `--output=jsonpath=${path}`);
const until = (name: string, condition: string) =>
  k("wait", `--for=condition=${condition}`, "--timeout=120s", `tj/${name}`);

function apply(name: string, spec: object, ...flags: readonly string[]): string {
  const metadata = { name, namespace };
  const object = { apiVersion: "heddle.dev/v1alpha1", kind: "TrainingJob", metadata, spec };
  return kubectl(["apply", ...flags, "--filename", "-"], JSON.stringify(object));
}

/** Whether a user of the namespace may do that, as `kubectl auth can-i` says. */
function canI(user: string, ...what: readonly string[]): boolean {
  try {
    return k("auth", "can-i", ...what, `--as=${user}`).trim() === "yes";
  } catch (error) {
    if (/: no\n/.test(String(error))) return false;
    throw error;
  }
}

async function jobsNamed(name: string): Promise<readonly string[]> {
  const ids: string[] = [];
  for await (const { id } of heddle.jobs.list({ name: `${namespace}.${name}` })) ids.push(id);
  return ids;
}

describe.skipIf(why !== undefined)("habits of kubectl's users", () => {
  beforeAll(async () => {
    kubectl(["create", "namespace", namespace]);
    roles = helm("template", "heddle", CHART, ...ROLES);
    kubectl(["apply", "--filename", "-"], roles);
    for (const role of ["view", "edit"]) {
      k("create", "rolebinding", role, `--clusterrole=${role}`, `--user=${role}`);
    }
    local = await LocalHeddle.start();
    heddle = local.heddle;
    operator = await local.operator([namespace], []);
  });

  afterEach(() => {
    vi.unstubAllEnvs();
    k("delete", "tj", "--all", "--wait", "--timeout=120s");
  });

  afterAll(async () => {
    if (why !== undefined) return;
    operator.child.kill("SIGTERM");
    await Promise.all([operator.end(), local.end()]);
    kubectl(["delete", "--filename", "-"], roles);
    kubectl(["delete", "namespace", namespace, "--wait=false"]);
  });

  it("habits: who may edit a namespace may change its objects, and viewers read them", async () => {
    const create = ["create", "trainingjobs.heddle.dev"];
    await untilFound("the roles are aggregated", () => canI("edit", ...create) || undefined);
    expect(canI("edit", "patch", "inferencemodels.heddle.dev", "--subresource=scale")).toBe(true);
    expect(canI("edit", "patch", "trainingjobs.heddle.dev", "--subresource=status")).toBe(false);
    expect(canI("view", "watch", "heddleclusters.heddle.dev")).toBe(true);
    expect(canI("view", ...create)).toBe(false);
    expect(canI("stranger", "get", "trainingjobs.heddle.dev")).toBe(false);
  });

  it("habits: explain, wide columns, events and a wait by path show a job", async () => {
    expect(k("explain", "tj.spec.suspend")).toContain("Checkpoints the job");
    expect(apply("hello", { command: "true" }, "--dry-run=server")).toContain("server dry run");
    expect(k("get", "tj", "--output=name")).toBe("");
    apply("hello", { command: "true", queue: "default" });
    k("wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s", "tj/hello");
    const wide = k("get", "tj", "hello", "--output=wide");
    expect(wide).toMatch(/PROJECT +QUEUE +ATTEMPT +JOB/);
    expect(wide).toMatch(new RegExp(` ${namespace} +default +1 +job_`));
    const ofJob = "involvedObject.kind=TrainingJob,involvedObject.name=hello,type=Normal";
    await untilFound("the event of its end", () => {
      return /Succeeded/.test(k("get", "events", `--field-selector=${ofJob}`)) || undefined;
    });
  });

  it("habits: labels, edit, a JSON patch and a delete by label act on the one job", async () => {
    apply("sleeps", { command: "sleep 600", suspend: false });
    until("sleeps", "Running");
    k("annotate", "tj/sleeps", "note=a");
    k("label", "tj/sleeps", "team=a");
    vi.stubEnv("KUBE_EDITOR", "sed -i /suspend:/s/false/true/");
    k("edit", "tj/sleeps");
    until("sleeps", "Suspended");
    const resume = [{ op: "replace", path: "/spec/suspend", value: false }];
    k("patch", "tj/sleeps", "--type=json", "--patch", JSON.stringify(resume));
    until("sleeps", "Running");
    const [id = "", ...others] = await jobsNamed("sleeps");
    expect(others).toEqual([]);
    k("delete", "tj", "--selector=team=a", "--wait", "--timeout=120s");
    expect((await heddle.jobs.get(id)).state).toBe("cancelled");
  });

  it("habits: who applies what another has changed meets a conflict that names it", async () => {
    const mine = ["--server-side", "--field-manager=mine"];
    const spec = { command: "sleep 600", suspend: false };
    apply("shared", spec, ...mine);
    until("shared", "Running");
    await heddle.jobs.suspend(field("shared", "{.status.jobId}"));
    await untilFound(
      "the spec follows",
      () => field("shared", "{.spec.suspend}") === "true" || undefined,
    );
    expect(() => apply("shared", spec, ...mine)).toThrow(
      /conflict with "heddle-operator".*\.spec\.suspend/s,
    );
    apply("shared", { command: "sleep 600" }, ...mine);
    expect(field("shared", "{.spec.suspend}")).toBe("true");
    apply("shared", spec, ...mine, "--force-conflicts");
    until("shared", "Running");
    expect(await jobsNamed("shared")).toHaveLength(1);
  });

  it("habits: objects are refused at their change, compared and shown as they will be", async () => {
    apply("compared", { command: "sleep 600", suspend: false });
    until("compared", "Running");
    const wrong = ["tj", "compared", "--type=merge", "--patch"];
    expect(() => k("patch", ...wrong, '{"spec":{"retry_limit":-1}}')).toThrow(/spec.retry_limit/);
    apply("compared", { command: "sleep 600", suspend: true }, "--dry-run=server");
    expect(field("compared", "{.spec.suspend}")).toBe("false");
    const metadata = { name: "compared", namespace };
    const spec = { command: "sleep 600", suspend: true };
    const object = { apiVersion: "heddle.dev/v1alpha1", kind: "TrainingJob", metadata, spec };
    const diff = () => kubectl(["diff", "--filename", "-"], JSON.stringify(object));
    expect(diff).toThrow(/- {2}suspend: false\n\+ {2}suspend: true/);
    k("patch", "tj", "compared", "--subresource=status", ...STATUS_PATCH);
    await untilFound(
      "the phase",
      () => field("compared", "{.status.phase}") === "Running" || undefined,
    );
  });

  it("habits: objects deleted and made without an operator are caught up with", async () => {
    apply("leaves", { command: "sleep 600" });
    until("leaves", "Running");
    const [id = ""] = await jobsNamed("leaves");
    operator.child.kill("SIGTERM");
    await operator.end();
    k("delete", "tj", "leaves", "--wait=false");
    apply("comes", { command: "true" });
    expect(field("leaves", "{.metadata.deletionTimestamp}")).not.toBe("");
    operator = await local.operator([namespace], []);
    k("wait", "--for=delete", "--timeout=120s", "tj/leaves");
    until("comes", "Complete");
    expect((await heddle.jobs.get(id)).state).toBe("cancelled");
  });

  it.skipIf(!process.env["HEDDLE_KUBE_RIG"])(
    "habits: a deleted definition takes its jobs along, and works once made again",
    async () => {
      apply("gone", { command: "sleep 600" });
      until("gone", "Running");
      const [id = ""] = await jobsNamed("gone");
      kubectl(["delete", "crd", "trainingjobs.heddle.dev", "--wait", "--timeout=120s"]);
      expect((await heddle.jobs.get(id)).state).toBe("cancelled");
      await define(DEFINITIONS);
      apply("again", { command: "true" });
      until("again", "Complete");
    },
  );
});
