// holds: access-roles

import { describe, expect, it } from "vitest";
import { BINDS_ROLES, LIMITS_SUBJECTS } from "../cluster-version.ts";
import type { ControlReply } from "../command.ts";
import { ReplicatedControl } from "../replicated-control.ts";
import { newestControl } from "../testing/newest-control.ts";
import type { AccessCommand, BindingName } from "./records.ts";

const HASH = "ab".repeat(32);

function make(control: ReplicatedControl, command: AccessCommand): ControlReply {
  return control.apply({ type: "control", command }, control.index + 1);
}

const role = (permissions: string[]) => ({ description: "", permissions, updatedAtMs: 1 });
const set = (control: ReplicatedControl, name: string, permissions: string[] = ["jobs:read"]) =>
  make(control, { type: "role.set", atMs: 1, name, role: role(permissions) });
const remove = (control: ReplicatedControl, name: string) =>
  make(control, { type: "role.remove", atMs: 1, name });
const bind = (control: ReplicatedControl, binding: BindingName) =>
  make(control, { type: "binding.add", atMs: 1, binding });
const unbind = (control: ReplicatedControl, binding: BindingName) =>
  make(control, { type: "binding.remove", atMs: 1, binding });

const ALICE: BindingName = { kind: "user", subject: "alice", role: "auditor" };

describe("roles", () => {
  it.each([
    ["viewer", ["jobs:read"], "conflict"],
    ["Upper", ["jobs:read"], "invalid_value"],
    ["a".repeat(33), ["jobs:read"], "invalid_value"],
    ["none", [], "invalid_value"],
    ["typo", ["jobs:raed"], "invalid_value"],
    ["many", Array(65).fill("jobs:read"), "invalid_value"],
  ])("%s of %j are refused: %s", (name, permissions, code) => {
    const control = newestControl();
    const before = control.state.roles.size;
    expect(set(control, name, permissions)).toMatchObject({ ok: false, code });
    expect(control.state.roles.size).toBe(before);
  });

  it("are not removed while a binding, a key or the policy names them", () => {
    const control = newestControl();
    expect(remove(control, "auditor")).toMatchObject({ code: "not_found" });
    expect(remove(control, "viewer")).toMatchObject({ code: "conflict" });
    set(control, "auditor");
    bind(control, ALICE);
    expect(remove(control, "auditor")).toMatchObject({ code: "conflict" });
    unbind(control, ALICE);
    const policy = { adminRoles: ["auditor"], updatedAtMs: 1 };
    expect(make(control, { type: "access.set", atMs: 1, policy }).ok).toBe(true);
    expect(remove(control, "auditor")).toMatchObject({ code: "conflict" });
    make(control, { type: "access.set", atMs: 1, policy: { ...policy, adminRoles: ["admin"] } });
    const key = { id: "aaaaaaaa", name: "k", hash: HASH, scopes: [], role: "auditor" };
    const command = {
      type: "key.create" as const,
      atMs: 1,
      key: { ...key, models: [], limits: {}, createdAtMs: 1 },
    };
    expect(control.apply({ type: "control", command }, control.index + 1).ok).toBe(true);
    expect(remove(control, "auditor")).toMatchObject({ code: "conflict" });
    const revoke = { type: "key.revoke" as const, atMs: 2, id: "aaaaaaaa" };
    control.apply({ type: "control", command: revoke }, control.index + 1);
    expect(remove(control, "auditor").ok).toBe(true);
    expect(control.state.roles.size).toBe(0);
  });

  it("of administrators are not what every user has by default", () => {
    const control = newestControl();
    const choose = (defaultRole: string) => {
      const policy = { adminRoles: ["admin"], defaultRole, updatedAtMs: 1 };
      return make(control, { type: "access.set", atMs: 1, policy });
    };
    expect(choose("viewer").ok).toBe(true);
    expect(choose("admin")).toMatchObject({ code: "invalid_value", param: "default_role" });
    expect(control.state.access.get("policy")).toMatchObject({ defaultRole: "viewer" });
  });

  it("that do not exist are not bound, and no key has them", () => {
    const control = newestControl();
    expect(bind(control, ALICE)).toMatchObject({ code: "not_found", param: "role" });
    const key = { id: "aaaaaaaa", name: "k", hash: HASH, scopes: [], role: "auditor" };
    const command = {
      type: "key.create" as const,
      atMs: 1,
      key: { ...key, models: [], limits: {}, createdAtMs: 1 },
    };
    const reply = control.apply({ type: "control", command }, control.index + 1);
    expect(reply).toMatchObject({ code: "not_found", param: "role" });
  });

  it("before their cluster version are unknown to all masters", () => {
    const control = new ReplicatedControl(LIMITS_SUBJECTS);
    control.apply({ type: "version.raise", atMs: 0, version: LIMITS_SUBJECTS }, 1);
    expect(() => set(control, "auditor")).toThrow(/does not know .*role\.set/);
    expect(newestControl().version).toBeGreaterThanOrEqual(BINDS_ROLES);
  });
});

describe("bindings", () => {
  it("are added and removed once, each in its project", async () => {
    const control = newestControl();
    set(control, "auditor");
    const inVision = { ...ALICE, project: "vision" };
    for (const each of [ALICE, ALICE, inVision]) expect(bind(control, each).ok).toBe(true);
    expect(control.state.bindings.get("user:alice")?.roles).toEqual([
      { role: "auditor", atMs: 1 },
      { role: "auditor", project: "vision", atMs: 1 },
    ]);
    const restored = new ReplicatedControl();
    await restored.restore(control.snapshot());
    expect(restored.hash).toBe(control.hash);
    for (const each of [ALICE, ALICE]) expect(unbind(control, each).ok).toBe(true);
    expect(control.state.bindings.get("user:alice")?.roles).toHaveLength(1);
    unbind(control, inVision);
    expect(control.state.bindings.size).toBe(0);
  });

  it.each([
    [{ subject: "" }, "invalid_value"],
    [{ subject: " a" }, "invalid_value"],
    [{ subject: "a\nb" }, "invalid_value"],
    [{ subject: "a".repeat(201) }, "invalid_value"],
    [{ project: "../x" }, "invalid_value"],
    [{ kind: "robot" as never }, "invalid_value"],
    [{ kind: "key" as const, subject: "nothere0" }, "not_found"],
  ])("of %j are refused: %s", (part, code) => {
    const control = newestControl();
    expect(bind(control, { ...ALICE, role: "viewer", ...part })).toMatchObject({ code });
    expect(control.state.bindings.size).toBe(0);
  });

  it("of one subject are at most 64, and count in the state's bytes", () => {
    const control = newestControl();
    for (let i = 0; i < 64; i++) {
      expect(bind(control, { ...ALICE, role: "viewer", project: `p${i}` }).ok).toBe(true);
    }
    const more = bind(control, { ...ALICE, role: "viewer", project: "p64" });
    expect(more).toMatchObject({ ok: false, code: "conflict" });
    const limit = { type: "setting.put" as const, atMs: 1, name: "state_mib", value: 16 };
    control.apply({ type: "control", command: limit }, control.index + 1);
    const subject = (i: number) => `${i}-${"x".repeat(190)}`;
    let i = 0;
    while (i < 20_000 && bind(control, { ...ALICE, role: "viewer", subject: subject(i) }).ok) i++;
    const last = bind(control, { ...ALICE, role: "viewer", subject: subject(i) });
    expect(last).toMatchObject({ ok: false, code: "insufficient_storage" });
  });
});

describe("the access policy", () => {
  it.each([
    [{ adminRoles: [] }, "invalid_value"],
    [{ adminRoles: ["no-such-role"] }, "not_found"],
    [{ adminRoles: ["admin"], defaultRole: "no-such-role" }, "not_found"],
    [{ adminRoles: ["admin"], defaultRole: "admin" }, "invalid_value"],
  ])("%j is refused: %s", (policy, code) => {
    const control = newestControl();
    const command = { type: "access.set" as const, atMs: 1, policy: { ...policy, updatedAtMs: 1 } };
    expect(make(control, command)).toMatchObject({ code });
    expect(control.state.access.size).toBe(0);
  });
});
