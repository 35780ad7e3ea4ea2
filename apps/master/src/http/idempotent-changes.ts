import {
  createCipheriv,
  createDecipheriv,
  createHash,
  createHmac,
  createSecretKey,
  type KeyObject,
  randomBytes,
} from "node:crypto";
import { AppError } from "@heddle/base/errors";
import type { ControlCommand } from "@heddle/control/command";
import { differentRequest, type IdempotencyRecord } from "@heddle/control/idempotency";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { PEPPER } from "../control-plane/control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { type Accepted, accepted, propose } from "../control-plane/propose.ts";
import type { CallerRequest } from "./access.ts";
import { canonicalJson } from "./json-body.ts";

/** A change that a request asks for. */
export interface RequestedChange<Outcome> {
  readonly command: ControlCommand;
  /** The response to a successful change, as JSON, without what only `apply` knows. */
  readonly answer: Outcome;
}

const CIPHER = "aes-256-gcm";
const IV_BYTES = 12;
const TAG_BYTES = 16;

/**
 * Makes the changes of requests. One with the header `Idempotency-Key` is made once: a retry within
 * 24 hours, at any master, gets the first response with `Idempotency-Replayed: true`. The response
 * is encrypted in the replicated state with a key derived from the header, because it may hold a
 * secret.
 */
export class IdempotentChanges {
  readonly #control: ControlPlane;
  readonly #pepper: KeyObject;

  constructor(@Inject(CONTROL_PLANE) control: ControlPlane, @Inject(PEPPER) pepper: KeyObject) {
    this.#control = control;
    this.#pepper = pepper;
  }

  /**
   * The response to a request. `requested` reads and checks it if it was not answered before, and
   * `answer` builds the full response. Throws `unprocessable` for another request under the same
   * key, and the refusal of the change.
   */
  async make<Outcome, Answer>(
    request: CallerRequest,
    reply: FastifyReply,
    requested: () => RequestedChange<Outcome> | Promise<RequestedChange<Outcome>>,
    answer: (outcome: Outcome, made: Accepted) => Answer,
  ): Promise<Answer> {
    const key = idempotencyKeyOf(request);
    if (key === undefined) {
      const { command, answer: outcome } = await requested();
      return answer(outcome, await propose(this.#control, command));
    }
    const { id, secret } = this.#namesOf(request, key);
    const fingerprint = fingerprintOf(request);
    const known = this.#control.keptAnswer(id);
    if (known) {
      if (known.fingerprint !== fingerprint) accepted(differentRequest());
      reply.header("idempotency-replayed", "true");
      return answer(open<Outcome>(known.answer, secret), accepted(known.reply));
    }
    const { command, answer: outcome } = await requested();
    const sealed = seal(outcome, secret);
    const idempotency = { id, fingerprint, answer: sealed };
    const result = await this.#control.propose(command, { idempotency });
    const kept = this.#control.keptAnswer(id);
    if (isOfAnother(kept, fingerprint, sealed)) reply.header("idempotency-replayed", "true");
    const made = accepted(result, command);
    return answer(kept ? open<Outcome>(kept.answer, secret) : outcome, made);
  }

  /** The record's id in the cluster, and the encryption key of the response. */
  #namesOf(request: CallerRequest, key: string): { id: string; secret: KeyObject } {
    const caller = request.caller?.id ?? "";
    const derive = (purpose: string) =>
      createHmac("sha256", this.#pepper).update(`${purpose}\n${caller}\n${key}`).digest();
    return {
      id: `${caller}:${derive("name").toString("hex")}`,
      secret: createSecretKey(derive("seal")),
    };
  }
}

/** Whether another, concurrent request with this key was applied first. */
function isOfAnother(
  kept: IdempotencyRecord | undefined,
  fingerprint: string,
  sealed: string,
): boolean {
  return kept !== undefined && kept.fingerprint === fingerprint && kept.answer !== sealed;
}

/** The caller's name for its request. Throws `invalid_value` for a malformed one. */
export function idempotencyKeyOf(request: Pick<CallerRequest, "headers">): string | undefined {
  const header = request.headers["idempotency-key"];
  if (header === undefined) return undefined;
  if (typeof header === "string" && /^[\x21-\x7e]{1,255}$/.test(header)) return header;
  const message =
    "Invalid value for the header 'Idempotency-Key': expected 1 to 255 printable characters without spaces.";
  throw new AppError("invalid_value", message, { param: "Idempotency-Key" });
}

/** A hash of the request: method, URL, precondition, project, role and body. */
function fingerprintOf(request: CallerRequest): string {
  const { method, url, headers, body } = request;
  const { "x-heddle-project": project, "x-heddle-role": role } = headers;
  const rights = [...(project ? [project] : []), ...(role ? [`role ${role}`] : [])];
  const parts = [method, url, headers["if-match"] ?? "", ...rights];
  const hash = createHash("sha256").update(JSON.stringify(parts));
  const content = body as Buffer | undefined;
  return hash.update(content && content.length > 0 ? canonicalJson(content) : "").digest("hex");
}

function seal(outcome: unknown, secret: KeyObject): string {
  const iv = randomBytes(IV_BYTES);
  const cipher = createCipheriv(CIPHER, secret, iv);
  const text = Buffer.concat([cipher.update(JSON.stringify(outcome), "utf8"), cipher.final()]);
  return Buffer.concat([iv, cipher.getAuthTag(), text]).toString("base64");
}

function open<Outcome>(sealed: string, secret: KeyObject): Outcome {
  const bytes = Buffer.from(sealed, "base64");
  const decipher = createDecipheriv(CIPHER, secret, bytes.subarray(0, IV_BYTES));
  decipher.setAuthTag(bytes.subarray(IV_BYTES, IV_BYTES + TAG_BYTES));
  const text = Buffer.concat([
    decipher.update(bytes.subarray(IV_BYTES + TAG_BYTES)),
    decipher.final(),
  ]);
  return JSON.parse(text.toString("utf8")) as Outcome;
}
