import { createHash } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { open, rename, rm } from "node:fs/promises";
import { resolve } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { AppError } from "@heddle/base/errors";
import { checkNewFile } from "@heddle/base/new-file";
import { protectionText } from "@heddle/base/secret-keys";
import { checkBackup, contentsText } from "@heddle/storage/backup-file";
import {
  readSnapshotChunks,
  readSnapshotMeta,
  type SnapshotMeta,
  snapshotKey,
} from "@heddle/storage/snapshot-file";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import type { Command } from "commander";
import { commandContext } from "../../command-context.ts";
import { dataDirectory } from "../../connection.ts";
import { isRecordFormat, printRecord } from "../../output/rows.ts";
import { secretsKeyFlag } from "../../up/cluster-plan.ts";
import { runOnStoppedMaster } from "./cluster-offline.ts";

/** How long nothing may come of a backup. */
const STALL_MS = 120_000;

/** `heddle cluster backup [file]`: from a running master, or with --data from a stopped one. */
export async function backupCluster(command: Command): Promise<number> {
  const { data, stale, documents, secretsKeyFile } = command.opts<{
    data?: string;
    stale?: boolean;
    documents: boolean;
    secretsKeyFile?: string;
  }>();
  const [file] = command.args;
  if (data !== undefined) {
    const at = new Date().toISOString().replace(/[:.]/g, "-");
    const target = file ?? `heddle-offline-${at}.backup`;
    const flags = ["--data", dataDirectory(data), "--file", target];
    const args = ["backup", ...flags, ...secretsKeyFlag(secretsKeyFile)];
    return runOnStoppedMaster(command, args, "file");
  }
  return await backupRunning(command, file, { isStale: stale === true, documents });
}

async function backupRunning(
  command: Command,
  file: string | undefined,
  { isStale, documents }: { readonly isStale: boolean; readonly documents: boolean },
): Promise<number> {
  const { heddle, format, data, messages } = commandContext(command);
  if (file !== undefined) checkNewFile(resolve(file));
  const stall = new AbortController();
  const response = await heddle.cluster.backup({
    consistency: isStale ? "stale" : "strong",
    documents,
    signal: stall.signal,
  });
  const target = resolve(file ?? nameOf(response));
  checkNewFile(target);
  const meta = await save(response, target, stall);
  const counts = await checkBackup(nodeStorageFiles, target);
  const sha256 = await digestOf(target);
  const { cluster, index, term } = meta;
  const key = await snapshotKey(nodeStorageFiles, target);
  if (isRecordFormat(format)) {
    const secrets_key = key ?? null;
    const { contents, missing: missing_contents } = counts;
    const record = {
      file: target,
      cluster,
      index,
      term,
      sha256,
      secrets_key,
      contents,
      missing_contents,
    };
    printRecord(record, target, format, data);
    return 0;
  }
  data.write(`${target}\n`);
  messages.write(`the state of the cluster ${cluster} up to entry ${index}; SHA-256 ${sha256}\n`);
  messages.write(`${contentsText(counts)}\n`);
  messages.write(`${protectionText(key)}\n`);
  return 0;
}

/** Renamed to the target only when complete and checked; readable by its owner only. */
async function save(
  response: Response,
  target: string,
  stall: AbortController,
): Promise<SnapshotMeta> {
  const draft = `${target}.partial`;
  try {
    if (!response.body) throw new AppError("unavailable", "The master sent no backup.");
    const body = Readable.fromWeb(response.body as Parameters<typeof Readable.fromWeb>[0]);
    const file = createWriteStream(draft, { mode: 0o600 });
    await pipeline(body, (chunks) => watched(chunks, stall), file);
    const handle = await open(draft, "r+");
    await handle.sync();
    await handle.close();
    const meta = await readSnapshotMeta(nodeStorageFiles, draft);
    for await (const _ of readSnapshotChunks(nodeStorageFiles, draft));
    await rename(draft, target);
    return meta;
  } catch (cause) {
    await rm(draft, { force: true });
    if (cause instanceof AppError && cause.code !== "server_error") throw cause;
    const message = `The download of the backup is incomplete: ${(cause as Error).message}. Try again.`;
    throw new AppError("unavailable", message, { cause });
  }
}

/** Passes bytes on; fails when none were received for a time. */
async function* watched(
  chunks: AsyncIterable<Uint8Array>,
  stall: AbortController,
): AsyncGenerator<Uint8Array, void> {
  const giveUp = () => stall.abort(new AppError("deadline_exceeded", "The backup stalled."));
  const timer = setTimeout(giveUp, STALL_MS);
  try {
    for await (const chunk of chunks) {
      timer.refresh();
      yield chunk;
    }
  } finally {
    clearTimeout(timer);
  }
}

/** The file name that the master suggests, without directories. */
function nameOf(response: Response): string {
  const header = response.headers.get("content-disposition") ?? "";
  return /filename="([A-Za-z0-9-]+\.backup)"/.exec(header)?.[1] ?? "heddle.backup";
}

async function digestOf(path: string): Promise<string> {
  const hash = createHash("sha256");
  await pipeline(createReadStream(path), hash);
  return hash.digest("hex");
}
