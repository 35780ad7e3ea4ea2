import { grants } from "@heddle/auth/scopes";
import { AppError } from "@heddle/base/errors";
import { clusterOperations, type IssuedJoinToken } from "@heddle/contracts/api/cluster";
import { secretsKeyOf } from "@heddle/control/cluster-version";
import { formatJoinToken } from "@heddle/pki/join-token";
import { Controller, Inject, Req } from "@nestjs/common";
import { AUTHORITY_HASH } from "../../control-plane/control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { createJoin } from "../../control-plane/enrollment/enroll-keys.ts";
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
    const { role, name } = body;
    if (role === "master" && !grants(request.caller?.scopes ?? [], "cluster:admin")) {
      const message =
        "A master's join token needs the permission cluster:admin: it brings the authority's key.";
      throw new AppError("permission_denied", message);
    }
    const ttlMs = body.ttl_seconds * 1000;
    const { secret, expiresAtMs } = await createJoin(this.#control, { role, name }, ttlMs);
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
