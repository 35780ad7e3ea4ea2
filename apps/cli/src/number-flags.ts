import { AppError } from "@heddle/base/errors";

/** The number of a flag; undefined where it is absent. */
export function amountOf(
  flags: Record<string, string | undefined>,
  name: string,
): number | undefined {
  const text = flags[name];
  if (text === undefined) return undefined;
  if (/^\d{1,9}(\.\d{1,6})?$/.test(text)) return Number(text);
  const flag = name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  throw new AppError("invalid_value", `--${flag} "${text}": give a number.`);
}

/** The whole number of a flag. */
export function wholeNumberOf(flag: string, text: string): number {
  if (/^\d{1,9}$/.test(text)) return Number(text);
  throw new AppError("invalid_value", `${flag} "${text}": give a whole number.`);
}

const UNIT_S = { s: 1, m: 60, h: 3_600, d: 86_400 } as const;

/** The time span of a flag in seconds: `90`, `90s`, `15m`, `24h` or `7d`. */
export function secondsOf(flag: string, text: string): number {
  const [, amount, unit = "s"] = /^(\d{1,9})([smhd])?$/.exec(text) ?? [];
  if (amount !== undefined) return Number(amount) * UNIT_S[unit as keyof typeof UNIT_S];
  const message = `${flag} "${text}": give a whole number of s, m, h or d, for example 24h or 7d.`;
  throw new AppError("invalid_value", message);
}

const WRITTEN_TIME = /^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)$/;

/** The moment of a flag in ISO 8601: a time span from now, or a time with its offset. */
export function momentOf(flag: string, text: string, nowMs = Date.now()): string {
  const isWritten = /^\d{4}-/.test(text);
  const at = new Date(isWritten ? text : nowMs + secondsOf(flag, text) * 1_000);
  const isExact = !isWritten || WRITTEN_TIME.test(text);
  if (isExact && !Number.isNaN(at.getTime())) return at.toISOString();
  const message = `${flag} "${text}": give a time as 2027-01-31T00:00:00Z, or a time span as 30d.`;
  throw new AppError("invalid_value", message);
}
