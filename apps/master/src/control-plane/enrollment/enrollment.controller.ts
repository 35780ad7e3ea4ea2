import type { KeyObject } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import type { Certificates } from "@heddle/contracts/generated/heddle/v1/Certificates";
import type { JoinRequest__Output } from "@heddle/contracts/generated/heddle/v1/JoinRequest";
import type { RenewRequest__Output } from "@heddle/contracts/generated/heddle/v1/RenewRequest";
import { isRevoked } from "@heddle/control/revocations";
import type { JoinRecord } from "@heddle/control/state";
import type { Log } from "@heddle/observability/logger";
import {
  type CertificateAuthority,
  CLOCK_SKEW_MS,
  signNode,
} from "@heddle/pki/certificate-authority";
import { joinSecretId } from "@heddle/pki/join-token";
import { NODE_NAME, NODE_ROLES, type NodeRole } from "@heddle/pki/node-name";
import type { TlsIdentity } from "@heddle/pki/tls-identity";
import { GrpcCall, type UnaryContext } from "@heddle/rpc/nest/grpc-call";
import { enrollmentService } from "@heddle/rpc/proto";
import { Controller, Inject } from "@nestjs/common";
import type { ControlPlane } from "../control-plane.ts";
import { proposeOnce } from "../propose.ts";
import { isEnrollKey, joinByKey } from "./enroll-keys.ts";

/** Joining requires no certificate, so the work of unauthenticated callers is bounded. */
const MAX_JOINING = 16;

export interface EnrollmentOptions {
  readonly authority: CertificateAuthority;
  readonly tls: TlsIdentity;
  readonly certificateLifetimeMs: number;
  readonly log: Log;
  /** Throws `unavailable` while this master is still starting. */
  readonly control: () => ControlPlane;
  /** The secret that keys are hashed with. Throws `unavailable` until the cluster has its keys. */
  readonly pepper: () => KeyObject;
}

/** The injection token of EnrollmentOptions. */
export const ENROLLMENT = Symbol("EnrollmentOptions");

/** Issues the nodes' certificates: the first for a join token or an enrolment key, later ones for the previous one. */
@Controller()
export class EnrollmentController {
  readonly #options: EnrollmentOptions;
  #joining = 0;

  constructor(@Inject(ENROLLMENT) options: EnrollmentOptions) {
    this.#options = options;
  }

  @GrpcCall(enrollmentService, "Join")
  async join(request: JoinRequest__Output): Promise<Certificates> {
    if (this.#joining >= MAX_JOINING) throw new AppError("overloaded", "many nodes are joining");
    this.#joining++;
    try {
      return await this.#admit(request);
    } finally {
      this.#joining--;
    }
  }

  async #admit({ secret, role: asked, name, csr }: JoinRequest__Output): Promise<Certificates> {
    const { authority, certificateLifetimeMs, log } = this.#options;
    const role = NODE_ROLES.find((known) => known === asked);
    if (!role || !NODE_NAME.test(name)) {
      throw new AppError("invalid_value", "a node joins with a role and a name");
    }
    const id = joinSecretId(await this.#joinSecret(secret, role, name));
    const join = await this.#known(id, role, name);
    this.#refuseRevoked(role, name);
    // Sign before the token is consumed, so that a bad request does not use it up.
    const certificate = await signNode(authority, csr, { role, name }, certificateLifetimeMs);
    await this.#useUp(id, role);
    // The token still grants the membership of the group.
    if (role === "master") await this.#keepAdmission(id, join);
    log.info({ role, name }, "a node got its first certificate");
    const authorityKey = role === "master" ? authority.privateKey : "";
    return { certificate, authority: authority.certificate, authorityKey };
  }

  /** A certificate that is made now would count as revoked. */
  #refuseRevoked(role: NodeRole, name: string): void {
    const { cluster } = this.#options.control().state;
    if (!isRevoked(cluster, { role, name }, Date.now() - CLOCK_SKEW_MS)) return;
    const minutes = CLOCK_SKEW_MS / 60_000;
    const message = `the certificates of the ${role} ${name} were just revoked: join ${minutes} minutes later, or by another name`;
    throw new AppError("precondition_failed", message);
  }

  async #joinSecret(secret: string, role: NodeRole, name: string): Promise<string> {
    if (!isEnrollKey(secret)) return secret;
    const { control, pepper } = this.#options;
    return joinByKey(control(), pepper(), secret, { role, name });
  }

  @GrpcCall(enrollmentService, "Renew")
  async renew(
    request: RenewRequest__Output,
    { call }: Pick<UnaryContext<RenewRequest__Output, Certificates>, "call">,
  ): Promise<Certificates> {
    const { authority, certificateLifetimeMs, tls } = this.#options;
    const node = tls.peerName(call.getAuthContext().sslPeerCertificate, NODE_ROLES);
    const certificate = await signNode(authority, request.csr, node, certificateLifetimeMs);
    return { certificate, authority: authority.certificate, authorityKey: "" };
  }

  /**
   * Looks the token up before anything is proposed, so guesses cost no log entries. Before it
   * refuses, it catches up with the log: the token may have been created through another master
   * just now.
   */
  async #known(id: string, role: NodeRole, name: string): Promise<JoinRecord> {
    const control = this.#options.control();
    const find = () => {
      const join = control.state.joins.get(id);
      return join?.role === role && join.name === name && !join.enrolled ? join : undefined;
    };
    if (!find()) await control.group?.readBarrier();
    const join = find();
    if (!join) throw refusal(role, name);
    return join;
  }

  async #keepAdmission(id: string, join: JoinRecord): Promise<void> {
    const enrolled = { ...join, enrolled: true };
    await proposeOnce(this.#options.control(), {
      type: "join.create",
      atMs: Date.now(),
      id,
      join: enrolled,
    });
  }

  async #useUp(id: string, role: NodeRole): Promise<void> {
    try {
      await proposeOnce(this.#options.control(), { type: "join.use", atMs: Date.now(), id, role });
    } catch (error) {
      if (error instanceof AppError && error.code === "not_found") throw refusal(role, "");
      throw error;
    }
  }
}

function refusal(role: NodeRole, name: string): AppError {
  const message = `the join token is unknown, used, expired, or not for the ${role} ${name}: make a new one`;
  return new AppError("invalid_api_key", message);
}
