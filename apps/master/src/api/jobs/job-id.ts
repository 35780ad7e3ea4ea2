import { randomBytes } from "node:crypto";

const ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const TIME_DIGITS = 10;
const RANDOM_DIGITS = 16;

/** A new job's id: `job_` and a ULID, 48 bits of time and 80 random ones in Crockford's base 32. */
export function newJobId(nowMs: number): string {
  let time = "";
  for (let rest = nowMs, at = 0; at < TIME_DIGITS; at++) {
    time = ALPHABET[rest % 32] + time;
    rest = Math.floor(rest / 32);
  }
  const random = [...randomBytes(RANDOM_DIGITS)].map((byte) => ALPHABET[byte % 32]).join("");
  return `job_${time}${random}`;
}

/** Whether a text has the form of such an id. */
export function isJobId(text: string): boolean {
  return /^job_[0-7][0-9A-HJKMNP-TV-Z]{25}$/.test(text);
}
