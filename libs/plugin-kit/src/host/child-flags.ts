import { fileURLToPath } from "node:url";
import type { HostedEntry } from "../loading/plugin-list.ts";

/** The folder of Heddle's programs and packages. */
const HEDDLE = fileURLToPath(new URL("../../../../", import.meta.url));

/**
 * Node's flags for a plugin's process, which loads no native code, and starts processes only where
 * the list says so. It may read its code, at these paths, and the files that the list names.
 */
export function childFlags(entry: HostedEntry, code: readonly string[]): string[] {
  const { read, write, memoryMib, processes } = entry;
  const readable = [HEDDLE, ...code, ...read, ...write];
  return [
    "--permission",
    // Its files are beyond the permissions.
    "--no-experimental-sqlite",
    ...(processes ? ["--allow-child-process"] : []),
    ...readable.map((path) => `--allow-fs-read=${asGiven(path)}`),
    ...write.map((path) => `--allow-fs-write=${asGiven(path)}`),
    `--max-old-space-size=${memoryMib}`,
    "--disable-warning=ExperimentalWarning",
    "--disable-warning=SecurityWarning",
  ];
}

/** Node takes `*` at the end of a path as a pattern, and only existing folders as folders. */
function asGiven(path: string): string {
  return path.replace(/\*+$/, "");
}

const PASSED =
  /^(PATH|HOME|LANG|LC_\w+|TZ|TMPDIR|NODE_EXTRA_CA_CERTS|PLUGIN_\w+|(HTTPS?|NO)_PROXY)$/i;

/** The part of this process's environment that a plugin may know: no keys of Heddle. */
export function pluginEnvironment(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(env).filter(([name]) => PASSED.test(name)));
}
