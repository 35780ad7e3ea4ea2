/**
 * Writes the data directory of a master of the present version:
 *
 *     npm run golden:data -- FILE
 *
 * The gzip file is JSON: the files of the directory in base64, and what a later build must find in them.
 * It never changes.
 */
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { MasterGroup, REAL_MASTER } from "../apps/master/test/master-group.ts";

const NAME = "master-1";

/** Changes of all kinds, with a snapshot amid them, so that there are entries after it. */
async function fill(group: MasterGroup): Promise<void> {
  const change = async (method: string, path: string, body?: unknown) => {
    const reply = await group.change(NAME, method, `/api/v1/${path}`, body);
    if (!reply.ok) throw new Error(`${method} ${path}: ${reply.status} ${await reply.text()}`);
    return (await reply.json()) as { readonly id: string; readonly job_id: string };
  };
  const [first, second, third] = await Promise.all(
    ["first", "second", "third"].map((name) => change("POST", "keys", { name })),
  );
  await change("POST", `keys/${first?.id}/rotate`, {});
  await change("PUT", "cluster/settings/max_concurrent_jobs", { value: 7 });
  await change("PUT", "queues/night", { max_length: 9 });
  await change("PUT", "projects/lab", { weight: 2 });
  const spec = { command: "date", environment_variables: { TOKEN: "of-the-first-job" } };
  const job = await change("POST", "jobs", { ...spec, name: "one", queue: "night" });
  await change("POST", "cluster/snapshot");
  await change("DELETE", `keys/${second?.id}`);
  await change("PUT", "cluster/settings/max_concurrent_jobs", { value: 8 });
  await change("POST", "jobs", { ...spec, name: "two", project: "lab" });
  await change("POST", `jobs/${job.job_id}/suspend`);
  await change("POST", "cluster/join-tokens", { role: "master", name: "master-2" });
  await change("POST", `keys/${third?.id}/rotate`, {});
}

/** The content of an offline backup of it. */
function backupFacts(directory: string, file: string) {
  const args = [...REAL_MASTER, "backup", "--data", directory, "--file", file];
  const text = execFileSync(process.execPath, args, { encoding: "utf8" });
  const [, index, commands, hash] =
    /up to entry (\d+) \((\d+) commands, state ([0-9a-f]{16})\)/.exec(text) ?? [];
  if (hash === undefined) throw new Error(`no standing in: ${text}`);
  return { index: Number(index), commands: Number(commands), hash };
}

function filesOf(directory: string): Record<string, string> {
  const entries = readdirSync(directory, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile() && /\.(log|snap|json)$/.test(entry.name));
  const paths = files.map(({ parentPath, name }) => join(parentPath, name)).sort();
  return Object.fromEntries(
    paths.map((path) => [path.slice(directory.length + 1), readFileSync(path).toString("base64")]),
  );
}

async function main(file: string): Promise<void> {
  const group = new MasterGroup(1, [], undefined, REAL_MASTER);
  try {
    await group.startAll();
    await fill(group);
    const { cluster_version: version } = await group.status(NAME);
    const { adminKey } = group;
    const keys = await group.keyNames(NAME);
    await group.end(NAME, "SIGKILL");
    const directory = group.directory(NAME);
    const found = backupFacts(directory, join(group.folder, "golden.backup"));
    const golden = { version, adminKey, keys, ...found, files: filesOf(directory) };
    writeFileSync(file, gzipSync(JSON.stringify(golden), { level: 9 }));
  } finally {
    await group.close();
  }
}

const [file] = process.argv.slice(2);
if (file === undefined) {
  console.error("usage: npm run golden:data -- FILE");
  process.exitCode = 2;
} else {
  await main(file);
}
