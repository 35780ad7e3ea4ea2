import { AppError } from "@heddle/base/errors";

/** Above any vocabulary. */
export const MAX_TOKEN = 2 ** 31 - 1;

/**
 * Throws `invalid_value` for the first item of a list of token ids, or of several lists, that is no
 * token id. A schema would make a fault of each.
 */
export function checkTokenIds(param: string, given: readonly unknown[]): void {
  const isWrong = (each: unknown) => !isToken(each);
  if (typeof given[0] === "number") refuse(param, given.findIndex(isWrong));
  if (!Array.isArray(given[0])) return;
  for (const [at, list] of given.entries()) {
    if (Array.isArray(list)) refuse(`${param}[${at}]`, list.findIndex(isWrong));
  }
}

function isToken(given: unknown): boolean {
  return Number.isSafeInteger(given) && Number(given) >= 0 && Number(given) <= MAX_TOKEN;
}

function refuse(list: string, at: number): void {
  if (at < 0) return;
  const param = `${list}[${at}]`;
  const message = `Invalid value for '${param}': expected a whole number, the id of a token.`;
  throw new AppError("invalid_value", message, { param });
}
