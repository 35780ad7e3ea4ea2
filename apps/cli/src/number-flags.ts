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
