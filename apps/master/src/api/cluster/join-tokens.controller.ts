import { AppError } from "@heddle/base/errors";
import { clusterOperations, type IssuedJoinToken } from "@heddle/contracts/api/cluster";
import { secretsKeyOf } from "@heddle/control/cluster-version";
import { formatJoinToken, joinSecretId, newJoinSecret } from "@heddle/pki/join-token";
import { Controller, Inject, Req } from "@nestjs/common";
import { AUTHORITY_HASH } from "../../control-plane/control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { propose } from "../../control-plane/propose.ts";
import type { CallerRequest } from "../../http/access.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";

/** Tokens with which nodes get their first certificates. */
@Controller()
export class JoinTokensController {
  readonly #control: ControlPlane;
  readonly #authorityHash: string | null;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(AUTHORITY_HASH) authorityHash: string | null,
  ) {
    this.#control = control;
    this.#authorityHash = authorityHash;
  }

  @Serves(clusterOperations.createJoinToken)
  async create(@Req() request: CallerRequest): Promise<IssuedJoinToken> {
    const body = bodyOf(clusterOperations.createJoinToken, request);
    const authorityHash = this.#authorityHash ?? undefined;
    if (authorityHash === undefined && body.role !== "master") {
      const message = `The masters run without TLS: a ${body.role} joins with the cluster token.`;
      throw new AppError("precondition_failed", message);
    }
    const secret = newJoinSecret();
    const now = Date.now();
    const expiresAtMs = now + body.ttl_seconds * 1000;
    const { role, name } = body;
    const join = { role, name, expiresAtMs };
    await propose(this.#control, {
      type: "join.create",
      atMs: now,
      id: joinSecretId(secret),
      join,
    });
    return {
      object: "cluster.join_token",
      role,
      name,
      tls: authorityHash !== undefined,
      token: formatJoinToken({ authorityHash, secret }),
      expires_at: new Date(expiresAtMs).toISOString(),
      // The id of the key without which no master may join.
      secrets_key: secretsKeyOf(this.#control.state) ?? null,
    };
  }
}
