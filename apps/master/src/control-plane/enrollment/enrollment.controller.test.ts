// holds: life-leader-knowledge, sec-join-token

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

test("enrollment: a token just created through another master is valid, once", async () => {
  const control = new Follower();
  const enrollment = new EnrollmentController({
    authority: await createAuthority(),
    tls: undefined as unknown as TlsIdentity,
    certificateLifetimeMs: 3_600_000,
    log: { info() {}, warn() {}, error() {} },
    control: () => control,
  });
  const secret = newJoinSecret();
  const { csr } = await requestCertificate();
  const join = (role: string, name = "w") =>
    enrollment.join({ secret, role, name, csr } as never).then(
      () => "joined",
      (error: Error) => error.message,
    );
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
