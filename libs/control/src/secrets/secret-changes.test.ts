// holds: job-secrets

import { describe, expect, it } from "vitest";
import { KEEPS_SECRETS } from "../cluster-version.ts";
import type { ControlCommand, ControlReply } from "../command.ts";
import { jobId, jobSpec } from "../jobs/testing/specs.ts";
import { ReplicatedControl } from "../replicated-control.ts";
import { newestControl } from "../testing/newest-control.ts";
import { secretKey } from "./records.ts";

const [KEY, NEXT] = ["00112233aabbccdd", "ffeeddcc00112233"];
const TOKEN = { project: "vision", name: "token" };
const JOB = jobId(1);

function cluster(): ReplicatedControl {
  const control = newestControl();
  control.apply({ type: "secrets.key", atMs: 0, id: KEY }, 1);
  return control;
}

function make(control: ReplicatedControl, command: ControlCommand): ControlReply {
  return control.apply({ type: "control", command }, control.index + 1);
}

const set = (control: ReplicatedControl, changes: object = {}) =>
  make(control, {
    type: "secret.set",
    atMs: 5,
    ...TOKEN,
    sealed: "c2VhbGVk",
    key: KEY,
    ...changes,
  });
const remove = (control: ReplicatedControl) =>
  make(control, { type: "secret.remove", atMs: 6, ...TOKEN });
const submit = (control: ReplicatedControl, project: string) => {
  const spec = { ...jobSpec({ name: "uses" }), project, secret_variables: { T: "token" } };
  return make(control, { type: "job.submit", atMs: 7, jobId: JOB, spec });
};

describe("secrets of projects", () => {
  it("have a version that rises, and keep the time of their creation", () => {
    const control = cluster();
    expect(set(control)).toEqual({ ok: true, version: 1 });
    expect(set(control, { atMs: 9 })).toEqual({ ok: true, version: 2 });
    const record = control.state.secrets.get(secretKey(TOKEN));
    expect(record).toMatchObject({ version: 2, createdAtMs: 5, updatedAtMs: 9 });
  });

  it.each([
    [{ name: "Upper" }, "invalid_value"],
    [{ name: "a/b" }, "invalid_value"],
    [{ project: "" }, "invalid_value"],
    [{ sealed: "x".repeat(49_153) }, "invalid_value"],
    [{ key: NEXT }, "conflict"],
  ])("%j are refused: %s", (changes, code) => {
    const control = cluster();
    expect(set(control, changes)).toMatchObject({ ok: false, code });
    expect(control.state.secrets.size).toBe(0);
  });

  it("are refused in a cluster without a secrets key", () => {
    const control = newestControl();
    const reply = set(control);
    expect(reply).toMatchObject({ ok: false, code: "conflict" });
    expect(JSON.stringify(reply)).toContain("no secrets key");
  });

  it("are unknown before their cluster version", () => {
    const control = cluster();
    control.state.cluster.set("version", KEEPS_SECRETS - 1);
    expect(() => set(control)).toThrow(/does not know .*secret.set/);
    const role = { description: "", permissions: ["secrets:use"], updatedAtMs: 1 };
    const refused = make(control, { type: "role.set", atMs: 1, name: "old", role });
    expect(refused).toMatchObject({ ok: false, code: "invalid_value" });
  });

  it("that a job names exist, and stay until it has ended", () => {
    const control = cluster();
    expect(submit(control, "vision")).toMatchObject({
      code: "unprocessable",
      param: "secret_variables.T",
    });
    set(control);
    expect(submit(control, "speech")).toMatchObject({ code: "unprocessable" });
    expect(submit(control, "vision").ok).toBe(true);
    expect(remove(control)).toMatchObject({ ok: false, code: "conflict" });
    make(control, { type: "job.request", atMs: 8, jobId: JOB, request: "cancel" });
    expect(control.state.jobs.get(JOB)?.state).toBe("cancelled");
    expect(remove(control).ok).toBe(true);
    expect(remove(control)).toMatchObject({ ok: false, code: "not_found" });
  });

  it("of one name in two projects are removed apart", () => {
    const control = cluster();
    for (const project of ["vision", "speech"]) set(control, { project });
    expect(submit(control, "speech").ok).toBe(true);
    expect(remove(control).ok).toBe(true);
    expect(control.state.secrets.size).toBe(1);
  });

  it("move to another key by the version that was read", () => {
    const control = cluster();
    set(control);
    control.apply({ type: "secrets.key", atMs: 6, id: NEXT }, control.index + 1);
    const reseal = (version: number, key: string) =>
      make(control, { type: "secret.reseal", atMs: 7, ...TOKEN, version, sealed: "bmV3", key });
    expect(reseal(2, NEXT)).toMatchObject({ ok: false, code: "conflict" });
    expect(reseal(1, KEY)).toMatchObject({ ok: false, code: "conflict" });
    expect(reseal(1, NEXT).ok).toBe(true);
    const record = control.state.secrets.get(secretKey(TOKEN));
    expect(record).toMatchObject({ version: 1, key: NEXT, sealed: "bmV3", updatedAtMs: 5 });
  });

  it("are in snapshots, and make events without their values", async () => {
    const control = cluster();
    set(control);
    const change = { type: "SECRET_CHANGE", subject: "secrets/token", project: "vision" };
    expect(control.derived).toMatchObject([{ ...change, data: { version: 1 } }]);
    expect(JSON.stringify(control.derived)).not.toContain("c2VhbGVk");
    const restored = new ReplicatedControl();
    await restored.restore(control.snapshot());
    expect([...restored.state.secrets]).toEqual([...control.state.secrets]);
  });
});
