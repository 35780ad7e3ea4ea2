import { createHmac, timingSafeEqual } from "node:crypto";
import type { Introduction } from "@heddle/contracts/generated/heddle/v1/Introduction";
import { joinSecretId, parseJoinToken } from "@heddle/pki/join-token";

/** A join token of the replicated state; its id is the hash of its secret. */
interface RecordedToken {
  readonly role: string;
  readonly name?: string | undefined;
  readonly expiresAtMs: number;
}

type Newcomer = Pick<Introduction, "name" | "nonce" | "address">;

/** Proves that a new master has the join token, whose secret stays with it. */
export function admissionProof(token: string, newcomer: Newcomer): Buffer {
  return proofUnder(joinSecretId(parseJoinToken(token).secret), newcomer);
}

/** The id of the join token whose holder made the proof; undefined where there is none that is valid. */
export function findAdmission(
  joins: ReadonlyMap<string, RecordedToken>,
  newcomer: Newcomer & { readonly admission: Uint8Array },
  nowMs: number,
): string | undefined {
  for (const [id, { role, name, expiresAtMs }] of joins) {
    if (role !== "master" || name !== newcomer.name || expiresAtMs <= nowMs) continue;
    const expected = proofUnder(id, newcomer);
    const { admission } = newcomer;
    if (admission.length === expected.length && timingSafeEqual(admission, expected)) return id;
  }
  return undefined;
}

function proofUnder(id: string, { name, nonce, address }: Newcomer): Buffer {
  return createHmac("sha256", id).update(`admission\n${name}\n${nonce}\n${address}`).digest();
}
