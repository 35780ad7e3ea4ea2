// holds: sec-revoked

import { expect, test } from "vitest";
import { REVOKES_NODES } from "./cluster-version.ts";
import { isRevoked, revocationsSince } from "./revocations.ts";
import { newestControl } from "./testing/newest-control.ts";

function revoking() {
  const control = newestControl();
  const revoke = (name: string, atMs: number, role: "worker" | "parameter-server" = "worker") => {
    const command = { type: "node.revoke", nodeId: "id", role, name, atMs } as const;
    return control.apply({ type: "control", command }, control.index + 1);
  };
  return { control, revoke };
}

test("revocation: ends a node's earlier certificates, and no others", () => {
  const { control, revoke } = revoking();
  expect(revoke("w1", 1_000)).toMatchObject({ ok: true });
  const { cluster } = control.state;
  const isEnded = (role: string, name: string, fromMs: number) =>
    isRevoked(cluster, { role, name }, fromMs);
  expect(isEnded("worker", "w1", 1_000)).toBe(true);
  expect(isEnded("worker", "w1", 1_001)).toBe(false);
  expect(isEnded("worker", "w2", 1_000)).toBe(false);
  expect(isEnded("parameter-server", "w1", 1_000)).toBe(false);
  // By a master whose clock is behind.
  expect(revoke("w1", 500)).toMatchObject({ ok: true });
  expect(isEnded("worker", "w1", 1_000)).toBe(true);
  expect(revoke("w1", 2_000)).toMatchObject({ ok: true });
  expect(isEnded("worker", "w1", 2_000)).toBe(true);
});

test("revocation: nodes learn of those whose certificates may not have expired", () => {
  const { control, revoke } = revoking();
  revoke("w1", 999);
  revoke("w2", 1_000);
  revoke("p", 2_000, "parameter-server");
  expect(revocationsSince(control.state.cluster, 1_000)).toEqual([
    ["worker/w2", 1_000],
    ["parameter-server/p", 2_000],
  ]);
});

test("revocation: the first one is forgotten where there are too many", () => {
  const { control, revoke } = revoking();
  for (let at = 0; at < 10_000; at++)
    control.state.cluster.set(`revoked:worker/n${at}`, 1_000 + at);
  expect(revoke("last", 20_000)).toMatchObject({ ok: true });
  const isKept = (name: string) => isRevoked(control.state.cluster, { role: "worker", name }, 0);
  expect(["n0", "n1", "last"].map(isKept)).toEqual([false, true, true]);
});

test("revocation: a name that no certificate has is refused", () => {
  const { revoke } = revoking();
  for (const name of ["", "a/b", "a b", "x".repeat(64)]) {
    expect(revoke(name, 1)).toMatchObject({ ok: false, code: "invalid_value" });
  }
});

test("revocation: is unknown to versions before it", () => {
  const { control, revoke } = revoking();
  control.state.cluster.set("version", REVOKES_NODES - 1);
  expect(() => revoke("w1", 1)).toThrow("does not know the command");
});
