import { createHash, timingSafeEqual } from "node:crypto";
import type { Server, ServerUnaryCall, sendUnaryData } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import type { Certificates } from "@heddle/contracts/generated/heddle/v1/Certificates";
import type { JoinRequest__Output } from "@heddle/contracts/generated/heddle/v1/JoinRequest";
import type { RenewRequest__Output } from "@heddle/contracts/generated/heddle/v1/RenewRequest";
import type { NodeLog } from "@heddle/rpc/node/log";
import { type CertificateAuthority, signNode } from "@heddle/rpc/pki/certificate-authority";
import { joinSecretId } from "@heddle/rpc/pki/join-token";
import type { NodeRole } from "@heddle/rpc/pki/node-name";
import type { TlsIdentity } from "@heddle/rpc/pki/tls-identity";
import { enrollmentService } from "@heddle/rpc/proto";
import { toStatus } from "@heddle/rpc/status";
import { propose } from "../control/propose.ts";
import type { ControlPlane } from "../ports.ts";

const ROLES: readonly NodeRole[] = ["master", "worker", "parameter-server"];
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;
/** Joining needs no certificate, so that what strangers can keep busy is bounded. */
const MAX_JOINING = 16;

export interface EnrollmentOptions {
  readonly authority: CertificateAuthority;
  readonly tls: TlsIdentity;
  /** Stands in for join tokens of workers and parameter servers. */
  readonly clusterToken: string;
  readonly certificateLifetimeMs: number;
  readonly log: NodeLog;
}

/** Gives nodes their certificates: the first for a join token, later ones for the one before. */
export class EnrollmentService {
  readonly #options: EnrollmentOptions;
  #control: ControlPlane | undefined;
  #joining = 0;

  constructor(server: Server, options: EnrollmentOptions) {
    this.#options = options;
    server.addService(enrollmentService, {
      join: (
        { request }: ServerUnaryCall<JoinRequest__Output, Certificates>,
        reply: sendUnaryData<Certificates>,
      ) => void answer(this.#join(request), reply),
      renew: (
        call: ServerUnaryCall<RenewRequest__Output, Certificates>,
        reply: sendUnaryData<Certificates>,
      ) => void answer(this.#renew(call), reply),
    });
  }

  /** From now on join tokens can be checked. */
  serve(control: ControlPlane): void {
    this.#control = control;
  }

  async #join(request: JoinRequest__Output): Promise<Certificates> {
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
    const role = ROLES.find((known) => known === asked);
    if (!role || !NAME.test(name)) {
      throw new AppError("invalid_value", "a node joins with a role and a name");
    }
    const id = joinSecretId(secret);
    const isShared = role !== "master" && this.#isClusterToken(secret);
    if (!isShared) await this.#checkKnown(id, role);
    // Signed before the token is used up, so that a bad request does not cost it.
    const certificate = await signNode(authority, csr, { role, name }, certificateLifetimeMs);
    if (!isShared) await this.#useUp(id, role);
    log.info({ role, name }, "a node got its first certificate");
    const authorityKey = role === "master" ? authority.privateKey : "";
    return { certificate, authority: authority.certificate, authorityKey };
  }

  async #renew(call: ServerUnaryCall<RenewRequest__Output, Certificates>): Promise<Certificates> {
    const { authority, certificateLifetimeMs, tls } = this.#options;
    const node = tls.peerName(call.getAuthContext().sslPeerCertificate, ROLES);
    const certificate = await signNode(authority, call.request.csr, node, certificateLifetimeMs);
    return { certificate, authority: authority.certificate, authorityKey: "" };
  }

  get #running(): ControlPlane {
    if (this.#control) return this.#control;
    throw new AppError("unavailable", "this master is still starting");
  }

  #isClusterToken(secret: string): boolean {
    return timingSafeEqual(digest(secret), digest(this.#options.clusterToken));
  }

  /**
   * Spares the log what a guess would cost. The token may have been made through another master a moment
   * ago: before it says no, this one hears of all that was made by now.
   */
  async #checkKnown(id: string, role: NodeRole): Promise<void> {
    const { state, group } = this.#running;
    const isKnown = () => state.joins.get(id)?.role === role;
    if (isKnown()) return;
    await group?.readBarrier();
    if (!isKnown()) throw refusal(role);
  }

  async #useUp(id: string, role: NodeRole): Promise<void> {
    try {
      await propose(this.#running, { type: "join.use", atMs: Date.now(), id, role });
    } catch (error) {
      if (error instanceof AppError && error.code === "not_found") throw refusal(role);
      throw error;
    }
  }
}

function refusal(role: NodeRole): AppError {
  const message = `the join token is unknown, used, expired, or not for a ${role}: make a new one`;
  return new AppError("invalid_api_key", message);
}

async function answer(work: Promise<Certificates>, reply: sendUnaryData<Certificates>) {
  try {
    reply(null, await work);
  } catch (error) {
    reply(toStatus(error));
  }
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}
