import { parseArgs } from "node:util";
import { AppError } from "@heddle/base/errors";

/** Parses `--name value` flags, all of them known; throws an AppError that names what is wrong. */
export function commandFlags<Name extends string>(
  args: readonly string[],
  required: readonly Name[],
  optional: readonly Name[] = [],
): Readonly<Record<Name, string>> {
  const names = [...required, ...optional];
  const options = Object.fromEntries(names.map((name) => [name, { type: "string" as const }]));
  let values: Record<string, string | undefined>;
  try {
    values = parseArgs({ args: [...args], options, strict: true }).values;
  } catch (cause) {
    const known = names.map((name) => `--${name}`).join(", ");
    const message = `${(cause as Error).message}. The flags are ${known}.`;
    throw new AppError("invalid_value", message, { cause });
  }
  const missing = required.filter((name) => !values[name]);
  if (missing.length > 0) {
    const list = missing.map((name) => `--${name}`).join(", ");
    throw new AppError("invalid_value", `Give ${list}.`);
  }
  return Object.fromEntries(names.map((name) => [name, values[name] ?? ""])) as Record<
    Name,
    string
  >;
}
