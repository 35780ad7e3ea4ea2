import type { KeySpec } from "@heddle/contracts/api/keys";
import type { Command } from "commander";
import { wordsOf } from "../comma-list.ts";
import { commandContext } from "../command-context.ts";
import { type Connection, dataDirectory, readCredentials } from "../connection.ts";
import { fieldsOf, type JsonFields, textOf } from "../http/json-fields.ts";
import { momentOf, secondsOf } from "../number-flags.ts";
import {
  type Column,
  isRecordFormat,
  printChange,
  printRecord,
  printRows,
} from "../output/rows.ts";
import { DataDirectory } from "../up/data-directory.ts";
import { flagLimits, type LimitFlags } from "./limits.ts";

const COLUMNS: readonly Column<JsonFields>[] = [
  { header: "ID", value: (key) => textOf(key["id"]) },
  { header: "NAME", value: (key) => textOf(key["name"]) },
  { header: "ROLE", value: (key) => textOf(key["role"]) },
  { header: "SCOPES", value: (key) => words(key["scopes"]) },
  { header: "PROJECT", value: (key) => textOf(key["project"]), wide: true },
  { header: "OWNER", value: (key) => textOf(key["owner"]), wide: true },
  { header: "SERVICE ACCOUNT", value: (key) => textOf(key["service_account"]), wide: true },
  { header: "STATUS", value: (key) => textOf(key["status"]) },
  { header: "MODELS", value: (key) => words(key["models"]) || "all", wide: true },
  { header: "ROTATED TO", value: (key) => textOf(key["rotated_to"]), wide: true },
  { header: "CREATED", value: (key) => textOf(key["created_at"]), wide: true },
  { header: "EXPIRES", value: (key) => textOf(key["expires_at"]) || "never", wide: true },
];

/** `heddle keys list`. */
export async function listKeys(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const keys: JsonFields[] = [];
  for await (const key of heddle.keys.list()) keys.push(fieldsOf(key));
  printRows(keys, COLUMNS, format, data);
  return 0;
}

type KeyFlags = LimitFlags &
  Partial<Record<"scopes" | "models" | "role" | "project" | "owner" | "serviceAccount", string>> & {
    readonly expires?: string;
    readonly deterministic?: true;
  };

/** `heddle keys create <name>`: prints the key alone on standard output, for `$(...)`. */
export async function createKey(command: Command): Promise<number> {
  const { heddle, data, format, messages } = commandContext(command);
  const flags = command.opts<KeyFlags>();
  const body = {
    name: command.args[0] ?? "",
    ...(flags.scopes ? { scopes: wordsOf(flags.scopes) } : {}),
    ...(flags.models ? { models: wordsOf(flags.models) } : {}),
    ...(flags.role ? { role: flags.role } : {}),
    ...(flags.project ? { project: flags.project } : {}),
    ...(flags.owner ? { owner: flags.owner } : {}),
    ...(flags.serviceAccount ? { service_account: flags.serviceAccount } : {}),
    ...(flags.deterministic ? { deterministic: true } : {}),
    ...(flags.expires ? { expires_at: momentOf("--expires", flags.expires) } : {}),
    limits: flagLimits(flags),
  };
  const key = fieldsOf(await heddle.keys.create(body as KeySpec));
  for (const id of arrayOf(key["unknown_models"])) {
    messages.write(
      `warning: no model \`${id}\` is registered; the key can call it after its registration\n`,
    );
    messages.write("  (see `heddle models list`)\n");
  }
  if (isRecordFormat(format)) printRecord(key, "", format, data);
  else {
    messages.write(`key ${textOf(key["id"])}; store it now, it is not shown again:\n`);
    data.write(`${textOf(key["key"])}\n`);
  }
  return 0;
}

/** `heddle keys rotate <id>`: prints the new key alone on standard output. */
export async function rotateKey(command: Command): Promise<number> {
  const { heddle, connection, data, format, messages } = commandContext(command);
  const id = command.args[0] ?? "";
  const { overlap } = command.opts<{ overlap?: string }>();
  const body = overlap === undefined ? {} : { overlap_seconds: secondsOf("--overlap", overlap) };
  const key = fieldsOf(await heddle.keys.rotate(id, body));
  const keptIn = keepInstead(connection, id, textOf(key["key"]));
  if (keptIn) messages.write(`${keptIn} stores the new key, also for \`heddle up\`\n`);
  if (isRecordFormat(format)) printRecord(key, "", format, data);
  else {
    const ends = textOf(fieldsOf(key["replaces"])["expires_at"]);
    messages.write(`key ${id} is replaced by ${textOf(key["id"])} and expires at ${ends};\n`);
    messages.write("store it now, it is not shown again:\n");
    data.write(`${textOf(key["key"])}\n`);
  }
  return 0;
}

/** The next start needs the local cluster's own key, so it is stored; returns the directory. */
function keepInstead(connection: Connection, id: string, apiKey: string): string | undefined {
  const path = dataDirectory(undefined);
  const kept = readCredentials(path);
  if (!kept || kept.apiKey !== connection.apiKey || kept.apiKey.split("_")[2] !== id) {
    return undefined;
  }
  new DataDirectory(path).replaceKey({ ...kept, apiKey });
  return path;
}

/** `heddle keys revoke <id>`. */
export async function revokeKey(command: Command): Promise<number> {
  const context = commandContext(command);
  const id = command.args[0] ?? "";
  const revoked = fieldsOf(await context.heddle.keys.revoke(id));
  printChange({ record: revoked, name: id, sentence: `key ${id} is revoked` }, context);
  return 0;
}

function words(value: unknown): string {
  return arrayOf(value).join(",");
}

function arrayOf(value: unknown): string[] {
  return Array.isArray(value) ? value.map(textOf) : [];
}
