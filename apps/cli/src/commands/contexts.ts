import { resolve } from "node:path";
import { AppError } from "@heddle/base/errors";
import type { Command } from "commander";
import { type ClusterContext, ContextStore, LOCAL } from "../auth/context-store.ts";
import { DEFAULT_ENDPOINT, dataDirectory, endpointOrigin, readCredentials } from "../connection.ts";
import { type Column, printChange, printRows, type RowFormat } from "../output/rows.ts";
import { terminal } from "../output/terminal.ts";

interface ContextRow extends ClusterContext {
  readonly current: boolean;
}

const COLUMNS: readonly Column<ContextRow>[] = [
  { header: "NAME", value: ({ name }) => name },
  { header: "CURRENT", value: ({ current }) => (current ? "*" : "") },
  { header: "ENDPOINT", value: ({ endpoint }) => endpoint },
  { header: "PROJECT", value: ({ project }) => project ?? "" },
  { header: "API-KEY-FILE", value: ({ apiKeyFile }) => apiKeyFile ?? "", wide: true },
  { header: "CA", value: ({ ca }) => ca ?? "", wide: true },
];

interface ContextFlags {
  readonly endpoint?: string;
  readonly ca?: string;
  readonly apiKeyFile?: string;
  readonly project?: string;
  readonly output: RowFormat;
}

/** `heddle context list`. */
export async function listContexts(command: Command): Promise<number> {
  const { store, printing } = contextsOf(command);
  const current = store.current?.name ?? LOCAL;
  const [endpoint = DEFAULT_ENDPOINT] = readCredentials(dataDirectory(undefined))?.endpoints ?? [];
  const all = [{ name: LOCAL, endpoint }, ...store.list()];
  const rows = all.map((each) => ({ ...each, current: each.name === current }));
  printRows(rows, COLUMNS, printing.format, printing.data);
  return 0;
}

/** `heddle context use <name>`. */
export async function useContext(command: Command): Promise<number> {
  const { store, printing } = contextsOf(command);
  const [name = ""] = command.args;
  store.use(name);
  const endpoint = store.current?.endpoint;
  const sentence = `commands call ${endpoint ?? "the cluster of this machine"}`;
  printChange({ record: { object: "context", name, endpoint }, name, sentence }, printing);
  const variable = process.env["HEDDLE_ENDPOINT"];
  if (variable) {
    printing.messages.write(`warning: HEDDLE_ENDPOINT goes before it: it is ${variable}\n`);
  }
  return 0;
}

/** `heddle context set <name>`: fields that are not given stay as they are. */
export async function setContext(command: Command): Promise<number> {
  const { store, printing, flags } = contextsOf(command);
  const [name = ""] = command.args;
  const old = store.get(name);
  const endpoint = flags.endpoint ? endpointOrigin(flags.endpoint, "--endpoint") : old?.endpoint;
  if (endpoint === undefined) {
    throw new AppError("invalid_value", `A new context has an address: give --endpoint <url>.`);
  }
  const context = {
    name,
    endpoint,
    apiKeyFile: flags.apiKeyFile ? resolve(flags.apiKeyFile) : old?.apiKeyFile,
    project: flags.project ?? old?.project,
    ca: flags.ca ? resolve(flags.ca) : old?.ca,
  };
  store.set(context);
  const sentence = `set the context ${name} for ${endpoint}; \`heddle context use ${name}\` has commands call it`;
  printChange({ record: context, name, sentence }, printing);
  return 0;
}

/** `heddle context remove <name>`. */
export async function removeContext(command: Command): Promise<number> {
  const { store, printing } = contextsOf(command);
  const [name = ""] = command.args;
  store.remove(name);
  const sentence = `removed the context ${name}`;
  printChange({ record: { object: "context", name }, name, sentence }, printing);
  return 0;
}

function contextsOf(command: Command) {
  const flags = command.optsWithGlobals<ContextFlags>();
  const [data, messages] = [terminal(process.stdout), terminal(process.stderr)];
  const printing = { format: flags.output, data, messages };
  return { store: new ContextStore(dataDirectory(undefined)), printing, flags };
}
