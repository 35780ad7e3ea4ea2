// holds: access-services

import { expect, it } from "vitest";
import { RECORDS_EVENTS } from "../cluster-version.ts";
import type { ControlCommand, ControlReply } from "../command.ts";
import { ReplicatedControl } from "../replicated-control.ts";
import { newestControl } from "../testing/newest-control.ts";
import type { ServiceCommand } from "./records.ts";

type Change = Omit<Extract<ServiceCommand, { readonly type: "service.set" }>, "type" | "atMs">;

const HASH = "ab".repeat(32);

function make(control: ReplicatedControl, command: ControlCommand): ControlReply {
  return control.apply({ type: "control", command }, control.index + 1);
}

const set = (control: ReplicatedControl, change: Change, atMs = 1) =>
  make(control, { type: "service.set", atMs, ...change });
const remove = (control: ReplicatedControl, name: string) =>
  make(control, { type: "service.remove", atMs: 1, name });
const bind = (control: ReplicatedControl, subject: string) => {
  const binding = { kind: "service" as const, subject, role: "viewer" };
  return make(control, { type: "binding.add", atMs: 1, binding });
};
const addKey = (control: ReplicatedControl, id: string, service?: string) => {
  const key = { id, name: "k", hash: HASH, scopes: ["*"], models: [], limits: {}, createdAtMs: 1 };
  return make(control, { type: "key.create", atMs: 1, key: { ...key, service } });
};
const revoke = (control: ReplicatedControl, id: string) =>
  make(control, { type: "key.revoke", atMs: 2, id });

it("service accounts: a change keeps what it does not name", () => {
  const control = newestControl();
  set(control, { name: "ci", description: "builds" });
  set(control, { name: "ci", isDisabled: true }, 2);
  const disabled = { description: "builds", createdAtMs: 1, updatedAtMs: 2, disabledAtMs: 2 };
  expect(control.state.services.get("ci")).toEqual(disabled);
  set(control, { name: "ci", description: "tests" }, 3);
  expect(control.state.services.get("ci")).toMatchObject({ description: "tests", disabledAtMs: 2 });
  set(control, { name: "ci", isDisabled: false }, 4);
  expect(control.state.services.get("ci")).not.toHaveProperty("disabledAtMs");
});

it.each([
  [{ name: "Upper" }],
  [{ name: "" }],
  [{ name: "a".repeat(64) }],
  [{ name: "ci", description: "d".repeat(201) }],
])("service accounts: %j is refused", (change) => {
  const control = newestControl();
  expect(set(control, change)).toMatchObject({ code: "invalid_value" });
  expect(control.state.services.size).toBe(0);
});

it("service accounts: only one that exists has keys and roles", () => {
  const control = newestControl();
  expect(addKey(control, "aaaaaaaa", "ci")).toMatchObject({
    code: "not_found",
    param: "service_account",
  });
  expect(bind(control, "ci")).toMatchObject({ code: "not_found", param: "subject" });
  set(control, { name: "ci" });
  expect(addKey(control, "aaaaaaaa", "ci").ok).toBe(true);
  expect(bind(control, "ci").ok).toBe(true);
});

it("service accounts: one with a valid key stays; roles go with it", () => {
  const control = newestControl();
  expect(remove(control, "ci")).toMatchObject({ code: "not_found" });
  set(control, { name: "ci" });
  addKey(control, "aaaaaaaa", "ci");
  bind(control, "ci");
  expect(remove(control, "ci")).toMatchObject({ code: "conflict" });
  revoke(control, "aaaaaaaa");
  expect(remove(control, "ci").ok).toBe(true);
  expect([control.state.services.size, control.state.bindings.size]).toEqual([0, 0]);
});

it("service accounts: the last administrator's key is none of theirs", () => {
  const control = newestControl();
  set(control, { name: "ci" });
  addKey(control, "aaaaaaaa");
  addKey(control, "bbbbbbbb", "ci");
  expect(revoke(control, "aaaaaaaa")).toMatchObject({ code: "conflict" });
  expect(revoke(control, "bbbbbbbb").ok).toBe(true);
});

it("service accounts: before their cluster version they are unknown to all masters", () => {
  const control = new ReplicatedControl(RECORDS_EVENTS);
  control.apply({ type: "version.raise", atMs: 0, version: RECORDS_EVENTS }, 1);
  expect(() => set(control, { name: "ci" })).toThrow(/does not know .*service\.set/);
  expect(bind(control, "ci")).toMatchObject({ code: "invalid_value" });
});
