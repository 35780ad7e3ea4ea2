import { existsSync, readFileSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type { PluginEntry } from "@heddle/contracts/trainer/plugin-entry";
import { z } from "zod";

/** Plugins of one process. */
const MAX_PLUGINS = 64;
const MAX_LIST_BYTES = 1_048_576;

const digest = z
  .string()
  .regex(/^sha256:[0-9a-f]{64}$/, "expected sha256: and 64 hexadecimal digits");

const listed = z.strictObject({
  from: z.string().min(1).max(4_096).describe("A file, a folder, or the name of an npm package."),
  config: z.unknown().optional().describe("The plugin's settings, by its own schema."),
  digest: digest.optional().describe("The plugin is refused if its files have another."),
  isolation: z
    .enum(["process", "none"])
    .default("process")
    .describe(
      "`none` runs it in the master's own process: as fast as Heddle's own code, and as able to end it.",
    ),
  memory_mib: z.int().min(64).max(65_536).default(512).describe("Above it the process is ended."),
  read: z
    .array(z.string().min(1).max(4_096))
    .max(64)
    .default([])
    .describe("Further files and folders that its process may read."),
  write: z
    .array(z.string().min(1).max(4_096))
    .max(64)
    .default([])
    .describe("Files and folders that its process may read and write."),
  processes: z
    .boolean()
    .default(false)
    .describe("Its process may start programs, as executors do."),
});

const pluginList = z.strictObject({
  plugins: z.array(listed).max(MAX_PLUGINS),
  allowed: z
    .array(digest)
    .max(1_024)
    .optional()
    .describe("Digests; a plugin with none of them is refused."),
});

/** A plugin of a master: what to load, and the bounds of its process. */
export interface HostedEntry extends PluginEntry {
  readonly isolation: "process" | "none";
  readonly memoryMib: number;
  /** Paths that its process may read, and those that it may write too. */
  readonly read: readonly string[];
  readonly write: readonly string[];
  readonly processes: boolean;
}

/** A part of the setting that cannot be read. */
export interface UnreadableList {
  readonly from: string;
  readonly reason: string;
}

/** What the setting `--plugins` names: plugins, and lists of plugins that end in `.json`. */
export function readPluginSetting(
  names: readonly string[],
  folder: string,
): { readonly entries: readonly HostedEntry[]; readonly unreadable: readonly UnreadableList[] } {
  const entries: HostedEntry[] = [];
  const unreadable: UnreadableList[] = [];
  for (const name of names) {
    if (!name.endsWith(".json")) {
      entries.push({ ...ALONE, from: placeOf(name, folder), base: folder });
      continue;
    }
    const file = resolve(folder, name);
    try {
      entries.push(...readList(file));
    } catch (error) {
      unreadable.push({ from: file, reason: (error as Error).message });
    }
  }
  for (const { from } of entries.splice(MAX_PLUGINS)) {
    unreadable.push({ from, reason: `a process has at most ${MAX_PLUGINS} plugins` });
  }
  return { entries, unreadable };
}

/** The bounds of a plugin that no list names. */
export const ALONE = {
  isolation: "process",
  memoryMib: 512,
  read: [],
  write: [],
  processes: false,
} as const;

function readList(file: string): HostedEntry[] {
  const { plugins, allowed } = parsedList(file);
  const folder = dirname(file);
  return plugins.map(({ from, config, digest: own, memory_mib: memoryMib, ...rest }) => ({
    from: placeOf(from, folder),
    base: folder,
    config,
    isolation: rest.isolation,
    processes: rest.processes,
    memoryMib,
    digests: digestsOf(own, allowed),
    read: rest.read.map((path) => resolve(folder, path)),
    write: rest.write.map((path) => resolve(folder, path)),
  }));
}

/** Both hold where both are given. */
function digestsOf(own: string | undefined, allowed: readonly string[] | undefined) {
  if (own === undefined) return allowed;
  return allowed && !allowed.includes(own) ? [] : [own];
}

function parsedList(file: string) {
  if (!existsSync(file)) throw new Error("there is no such file");
  const { size } = statSync(file);
  if (size > MAX_LIST_BYTES) throw new Error(`it has ${size} bytes, more than ${MAX_LIST_BYTES}`);
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(file, "utf8"));
  } catch (error) {
    throw new Error(`it is not JSON: ${(error as Error).message}`);
  }
  const { data, error } = pluginList.safeParse(value);
  if (data) return data;
  throw new Error(issuesText(error));
}

/** All faults of a value, each with its place. */
function issuesText({ issues }: z.ZodError): string {
  return issues
    .slice(0, 20)
    .map(({ path, message }) =>
      path.length ? `${path.map(String).join(".")}: ${message}` : message,
    )
    .join("; ");
}

const PACKAGE_NAME = /^(@[a-z0-9~-][\w.~-]*\/)?[a-z0-9~-][\w.~-]*$/;

/** A path becomes absolute; a name that is no existing path is a package's. */
function placeOf(text: string, folder: string): string {
  const path = resolve(folder, text);
  const isName = PACKAGE_NAME.test(text) && !/\.[cm]?[jt]s$/.test(text);
  return isName && !existsSync(path) ? text : path;
}
