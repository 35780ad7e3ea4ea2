import { createHash } from "node:crypto";
import type { ResourceMetadata } from "../kubernetes/custom-resource.ts";

const ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const TIME_DIGITS = 10;
const RANDOM_DIGITS = 16;
const MAX_NAME = 128;

/**
 * The id of an object's job: a ULID of its creation and its uid. The same object always has the same
 * job, so a submission that is repeated, or made by two operators, is one job.
 */
export function jobIdOf({ creationTimestamp, uid }: ResourceMetadata): string {
  const time = BigInt(Date.parse(creationTimestamp));
  const digest = createHash("sha256").update(uid).digest("hex").slice(0, 20);
  return `job_${digits(time, TIME_DIGITS)}${digits(BigInt(`0x${digest}`), RANDOM_DIGITS)}`;
}

/** The name of an object's job, unless its spec has one. Where it must be cut, the uid keeps it unique. */
export function jobNameOf({ namespace, name, uid }: ResourceMetadata): string {
  const whole = `${namespace}.${name}`;
  if (whole.length <= MAX_NAME) return whole;
  const end = `-${uid.slice(0, 8)}`;
  return whole.slice(0, MAX_NAME - end.length) + end;
}

function digits(value: bigint, count: number): string {
  let text = "";
  for (let rest = value; text.length < count; rest >>= 5n) {
    text = `${ALPHABET[Number(rest & 31n)]}${text}`;
  }
  return text;
}
