// holds: life-leader-knowledge, sec-join-token

import { createSecretKey } from "node:crypto";
import { createApiKey, hashApiKey } from "@heddle/auth/api-key";
import { createAuthority, requestCertificate } from "@heddle/pki/certificate-authority";
import { joinSecretId, newJoinSecret } from "@heddle/pki/join-token";
import type { TlsIdentity } from "@heddle/pki/tls-identity";
import { expect, test } from "vitest";
import { VolatileControl } from "../../../test/test-master.ts";
import type { ControlGroup } from "../control-group.ts";
import { EnrollmentController } from "./enrollment.controller.ts";

/** A follower that applies the leader's entries only when it reads the leader's commit index. */
class Follower extends VolatileControl {
  readonly coming: Parameters<VolatileControl["propose"]>[0][] = [];
  readonly group = {
    readBarrier: async () => {
      for (const command of this.coming.splice(0)) await this.propose(command);
    },
  } as unknown as ControlGroup;
}

const pepper = createSecretKey(Buffer.alloc(32, 7));

async function opened(control: Follower) {
  const enrollment = new EnrollmentController({
    authority: await createAuthority(),
    tls: undefined as unknown as TlsIdentity,
    certificateLifetimeMs: 3_600_000,
    log: { info() {}, warn() {}, error() {} },
    control: () => control,
    pepper: () => pepper,
  });
  const { csr } = await requestCertificate();
  return (secret: string, role: string, name = "w") =>
    enrollment.join({ secret, role, name, csr } as never).then(
      () => "joined",
      (error: Error) => error.message,
    );
}

test("enrollment: a token just created through another master is valid, once", async () => {
  const control = new Follower();
  const secret = newJoinSecret();
  const joinBy = await opened(control);
  const join = (role: string, name = "w") => joinBy(secret, role, name);
  const made = { role: "worker" as const, name: "w", expiresAtMs: Date.now() + 1e6 };
  control.coming.push({
    type: "join.create",
    atMs: Date.now(),
    id: joinSecretId(secret),
    join: made,
  });
  expect(await join("worker", "another")).toMatch(/not for the worker another/);
  expect(await join("worker")).toBe("joined");
  expect(await join("worker")).toMatch(/unknown, used, expired/);
});

// holds: sec-enroll-key
test("enrollment: a key admits workers and servers, and the leader's state counts", async () => {
  const control = new Follower();
  const join = await opened(control);
  const { id, text } = createApiKey("live");
  const record = { id, name: "k", hash: hashApiKey(text, pepper), models: [], limits: {} };
  const create = (scopes: string[]) =>
    control.propose({
      type: "key.create",
      atMs: 1,
      key: { ...record, scopes, createdAtMs: 1 },
    });
  await create(["cluster:enroll"]);
  expect(await join(text, "worker")).toBe("joined");
  expect(await join(text, "parameter-server", "p")).toBe("joined");
  expect(await join(text, "master")).toMatch(/admits workers and parameter servers/);
  expect(await join(`${text.slice(0, -1)}!`, "worker")).toMatch(/Incorrect API key/);
  expect(control.state.joins.size).toBe(0);
  control.coming.push({ type: "key.revoke", atMs: Date.now(), id });
  expect(await join(text, "worker")).toMatch(/has been revoked/);
});
