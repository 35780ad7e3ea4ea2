import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { ERROR_TABLE } from "@heddle/base/errors";
import { chatCompletionRequest } from "@heddle/contracts/api/chat";
import { ERROR_MEANINGS, EXIT_MEANINGS } from "@heddle/contracts/api/errors";
import { logEventSchema } from "@heddle/contracts/api/events/log";
import { submitJobRequest } from "@heddle/contracts/api/job-spec";
import { createKeyRequest } from "@heddle/contracts/api/keys";
import { FAILURE_MEANINGS, JOB_STATE_MEANINGS } from "@heddle/contracts/api/meanings/jobs";
import { CHAT_TEMPLATE_MEANINGS, WEIGHT_SOURCES } from "@heddle/contracts/api/meanings/models";
import { OPERATIONS } from "@heddle/contracts/api/operations";
import { PERMISSIONS } from "@heddle/contracts/api/permission";
import { CLUSTER_SETTINGS } from "@heddle/contracts/api/settings";
import { CATALOG_PROFILES, catalogOf } from "@heddle/contracts/catalog";
import { exampleFile } from "@heddle/contracts/configuration/settings-text";
import { EVENT_TYPES } from "@heddle/contracts/event-types";
import { SHIPPED_ROLES } from "@heddle/contracts/roles";
import { TRAINER_VARIABLE_NAMES } from "@heddle/contracts/trainer-environment";
import { TRAINING_CONFIGS } from "@heddle/contracts/training";
import { PENDING_REASON_MEANINGS } from "@heddle/scheduler/explain/pending-meanings";
import { Command } from "commander";
import { z } from "zod";
import { makeProgram } from "../../apps/cli/src/program.ts";
import { oauth2Settings } from "../../apps/master/src/config/auth-file.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

let pages: Readonly<Record<string, string>> | undefined;

/** The pages of docs/reference by file name, generated from the code; made once in a process. */
export function referencePages(): Readonly<Record<string, string>> {
  pages ??= makePages();
  return pages;
}

function makePages(): Readonly<Record<string, string>> {
  return {
    "access.md": page(
      "Access",
      "administrators: permissions, roles, the fields of a key, and the `oauth2` of `--auth-file`",
      accessTables(),
    ),
    "api.md": page(
      "The HTTP API",
      "programs that call the API without a client: every operation, its permission and its headers",
      operationTables(),
    ),
    "chat.md": page(
      "Chat parameters",
      "callers of `POST /api/v1/chat/completions`: every parameter; the guide is [chat](../guide/chat.md)",
      fieldTable(chatCompletionRequest),
    ),
    "commands.md": page(
      "Commands",
      "users of the command line: every verb and option; `heddle VERB --help` prints the same",
      commandList(),
    ),
    "configuration.md": page(
      "The configuration file of a master",
      "operators: every setting, as `heddle config example` prints it; flags and variables are in [flags](flags.md)",
      `\`\`\`yaml\n${exampleFile().trimEnd()}\n\`\`\``,
    ),
    "errors.md": page(
      "Error codes",
      "callers that handle errors: every code; the guide is [errors](../guide/errors.md)",
      errorTable(),
    ),
    "event-types.md": page(
      "Types of events",
      "readers of the event log; the guide is [the event log](../guide/events.md)",
      [
        meaningTable("Type", EVENT_TYPES),
        "## Attributes of an event",
        fieldTable(logEventSchema),
      ].join("\n\n"),
    ),
    "flags.md": page(
      "Flags of the processes",
      "operators who start processes by themselves: every flag, its variable and its default",
      flagTexts(),
    ),
    "jobs.md": page(
      "Fields of a job",
      "users who write job specs: every field; the guide is [jobs](../guide/jobs.md)",
      jobTables(),
    ),
    "models.md": page(
      "Models",
      "users who register models: profiles, sources and templates; the guide is [models](../guide/models.md)",
      modelTables(),
    ),
    "settings.md": page(
      "Cluster settings",
      "administrators: what `PUT /api/v1/cluster/settings/{name}` sets for all masters",
      settingTable(),
    ),
    "training.md": page(
      "Fields of a training config",
      "users who write the `config` of a training job; the guide is [training](../guide/training.md)",
      trainingTables(),
    ),
  };
}

function page(title: string, reader: string, body: string): string {
  const generated = `<!-- generated: reference -->\n\n${body}\n\n<!-- end -->`;
  return `# ${title}\n\nFor ${reader}.\n\n${generated}\n`;
}

/** Cells are short, so the table is as wide as its text: no padding. */
function table(heads: readonly string[], rows: readonly (readonly string[])[]): string {
  const cell = (text: string) => text.replaceAll("|", "\\|").replaceAll("\n", " ");
  const line = (cells: readonly string[]) => `| ${cells.map(cell).join(" | ")} |`;
  return [line(heads), line(heads.map(() => "---")), ...rows.map(line)].join("\n");
}

function operationTables(): string {
  return Object.entries(OPERATIONS)
    .map(([subject, operations]) => {
      const rows = Object.values(operations).map(
        ({ method, path, permission, headers = [], summary }) => {
          return [`\`${method} ${path}\``, permission, headers.join(", "), summary];
        },
      );
      const heads = ["Operation", "Permission", "Headers", "What it does"];
      return `## ${subject}\n\n${table(heads, rows)}`;
    })
    .join("\n\n");
}

function errorTable(): string {
  const rows = Object.entries(ERROR_TABLE).map(([code, { http, exit, retryable }]) => {
    const meaning = ERROR_MEANINGS[code as keyof typeof ERROR_TABLE];
    return [`\`${code}\``, String(http), String(exit), retryable ? "yes" : "no", meaning];
  });
  const codes = table(["Code", "HTTP", "Exit", "Retry", "Meaning"], rows);
  const exits = Object.entries(EXIT_MEANINGS).map(([code, meaning]) => [code, meaning]);
  return [codes, "## Exit codes", table(["Exit", "Meaning"], exits)].join("\n\n");
}

function accessTables(): string {
  const roles = Object.entries(SHIPPED_ROLES).map(([name, { description, permissions }]) => {
    return [`\`${name}\``, permissions.map((each) => `\`${each}\``).join(", "), description];
  });
  return [
    "## Permissions",
    `${PERMISSIONS.map((each) => `\`${each}\``).join(", ")}; a group as \`jobs:*\`; or \`*\`.`,
    "## Roles",
    table(["Role", "Permissions", "Meaning"], roles),
    "## Fields of a key",
    fieldTable(createKeyRequest),
    "## Members of `oauth2`",
    fieldTable(oauth2Settings),
  ].join("\n\n");
}

function jobTables(): string {
  return [
    fieldTable(submitJobRequest),
    "## States",
    meaningTable("State", JOB_STATE_MEANINGS),
    "Cancelled in any live state: `cancelling`; a failure without a retry: `failed`.",
    "## Reasons of failures",
    meaningTable("Reason", FAILURE_MEANINGS),
    "## Why a job waits",
    meaningTable("Blocker", PENDING_REASON_MEANINGS),
  ].join("\n\n");
}

function modelTables(): string {
  const catalogs = CATALOG_PROFILES.map((profile) => catalogOf(profile).models);
  const ids = catalogs[0]?.map(({ id }) => id) ?? [];
  const profiles = ids.map((id) => [
    `\`${id}\``,
    ...catalogs.map((models) => models.find((model) => model.id === id)?.backing ?? ""),
  ]);
  const sources = Object.values(WEIGHT_SOURCES).map(({ form, meaning }) => {
    return [`\`${form}\``, meaning];
  });
  return [
    "## Profiles",
    table(["Id", ...CATALOG_PROFILES.map((profile) => `\`${profile}\``)], profiles),
    "## Sources",
    table(["Source", "Meaning"], sources),
    "## Chat templates",
    meaningTable("Value", CHAT_TEMPLATE_MEANINGS),
  ].join("\n\n");
}

function meaningTable(head: string, meanings: Readonly<Record<string, string>>): string {
  const rows = Object.entries(meanings).map(([name, meaning]) => [`\`${name}\``, meaning]);
  return table([head, "Meaning"], rows);
}

function settingTable(): string {
  const rows = Object.entries(CLUSTER_SETTINGS).map(([name, setting]) => {
    const { type, minimum, maximum, default: usual, unit, description } = setting;
    const bounds = `${type === "integer" ? "whole, " : ""}${number(minimum)} to ${number(maximum)}`;
    return [`\`${name}\``, `${bounds} ${unit}`, number(usual), description];
  });
  return table(["Name", "Value", "Default", "Meaning"], rows);
}

function flagTexts(): string {
  const programs = ["heddle-master", "heddle-worker", "heddle-parameter-server", "heddle-operator"];
  return programs
    .map((program) => {
      const { PATH, NODE_COMPILE_CACHE } = process.env;
      const env = { PATH, NODE_COMPILE_CACHE, HOME: "/HOME" };
      const args = [join(root, `bin/${program}.mjs`), "--help"];
      const text = execFileSync(process.execPath, args, { encoding: "utf8", env });
      return `## ${program}\n\n\`\`\`text\n${text.replaceAll("/HOME", "~").trimEnd()}\n\`\`\``;
    })
    .join("\n\n");
}

function commandList(): string {
  return leavesOf(makeProgram(() => async () => {}))
    .map((command) => {
      const rows = command.options.map(({ flags, description }) => [`\`${flags}\``, description]);
      const options = rows.length > 0 ? `\n\n${table(["Option", "Meaning"], rows)}` : "";
      return `## ${pathOf(command)}\n\n\`${usageOf(command)}\`: ${command.description()}.${options}`;
    })
    .join("\n\n");
}

function leavesOf(command: Command): Command[] {
  return command.commands.length === 0 ? [command] : command.commands.flatMap(leavesOf);
}

function pathOf(command: Command): string {
  return command.parent ? `${pathOf(command.parent)} ${command.name()}` : command.name();
}

function usageOf(command: Command): string {
  return `${pathOf(command)} ${command.usage()}`.trim();
}

function trainingTables(): string {
  const { common, ppo, weave, language_model, regression, classification } = TRAINING_CONFIGS;
  const shared = [...Object.keys(common.shape), ...Object.keys(weave.shape)];
  return [
    "## All algorithms\n\nThose of plugins too.",
    fieldTable(common),
    "## ppo",
    fieldTable(ppo, Object.keys(common.shape)),
    "## weave\n\nAll programs; `program` is `language_model`, `regression` or `classification`.",
    fieldTable(weave, Object.keys(common.shape)),
    "## weave: language models",
    fieldTable(language_model, shared),
    "## weave: regression",
    fieldTable(regression, shared),
    "## weave: classification",
    fieldTable(classification, shared),
    "## Variables\n\nThose that a job without a `command` may set.",
    TRAINER_VARIABLE_NAMES.map((name) => `\`${name}\``).join(", "),
  ].join("\n\n");
}

/** A JSON Schema, as far as the tables show it. */
interface Schema {
  readonly type?: string | readonly string[];
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly items?: Schema;
  readonly maxItems?: number;
  readonly maxLength?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly exclusiveMaximum?: number;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema | boolean;
  readonly default?: unknown;
  readonly description?: string;
}

function fieldTable(object: z.ZodObject, without: readonly string[] = []): string {
  const fields = z.strictObject(object.shape);
  const given = z.toJSONSchema(fields, { io: "input", unrepresentable: "any" });
  const parsed = z.toJSONSchema(fields, { io: "output", unrepresentable: "any" });
  const required = new Set(given.required);
  const rows = Object.entries((parsed as Schema).properties ?? {})
    .filter(([name]) => name !== "program" && !without.includes(name))
    .flatMap(([name, schema]) => rowsOf(name, schema, required.has(name)));
  return table(["Field", "Value", "Default", "Meaning"], rows);
}

function rowsOf(name: string, schema: Schema, isRequired: boolean): string[][] {
  const { properties, additionalProperties, description = "" } = schema;
  if (properties && additionalProperties === false) {
    const inner = Object.entries(properties);
    return inner.flatMap(([key, each]) => rowsOf(`${name}.${key}`, each, false));
  }
  const usual = schema.default === undefined ? "" : `\`${JSON.stringify(schema.default)}\``;
  return [[`\`${name}\``, typeOf(schema), isRequired ? "required" : usual, description]];
}

function typeOf(schema: Schema): string {
  const { type, items, additionalProperties } = schema;
  const choices = schema.anyOf ?? schema.oneOf;
  if (schema.enum) return schema.enum.map((each) => `\`${String(each)}\``).join(", ");
  if (schema.const !== undefined) return `\`${String(schema.const)}\``;
  if (choices) {
    const kinds = choices.filter((each) => each.type !== "null").map(typeOf);
    return [...new Set(kinds)].join(" or ");
  }
  if (type === "array") {
    const most = schema.maxItems === undefined ? "" : `, at most ${number(schema.maxItems)}`;
    return `list of ${items ? typeOf(items) : "JSON"}${most}`;
  }
  if (type === "object") {
    return typeof additionalProperties === "object" && additionalProperties.type
      ? `map to ${typeOf(additionalProperties)}`
      : "object";
  }
  if (type === "string") {
    return schema.maxLength === undefined ? "text" : `text to ${number(schema.maxLength)}`;
  }
  if (type === "number" || type === "integer") return range(schema);
  return typeof type === "string" ? type : (type?.find((each) => each !== "null") ?? "JSON");
}

function range(schema: Schema): string {
  const kind = schema.type === "integer" ? "whole" : "number";
  const least = schema.minimum ?? schema.exclusiveMinimum;
  const most = schema.maximum ?? schema.exclusiveMaximum;
  if (least === undefined || Math.abs(least) > Number.MAX_SAFE_INTEGER) return kind;
  if (most === undefined || most >= Number.MAX_SAFE_INTEGER)
    return `${kind}, from ${number(least)}`;
  const from = schema.exclusiveMinimum === undefined ? number(least) : `above ${number(least)}`;
  const below = schema.exclusiveMaximum === undefined ? "to" : "to below";
  return `${kind}, ${from} ${below} ${number(most)}`;
}

function number(value: number): string {
  return value.toLocaleString("en-US", { maximumFractionDigits: 9 });
}
