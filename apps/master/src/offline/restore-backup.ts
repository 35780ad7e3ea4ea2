import { existsSync } from "node:fs";
import { mkdir, readdir, rename, rm } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { AppError } from "@heddle/base/errors";
import { checkMemberAddress, checkMemberName } from "@heddle/base/network/member-address";
import type { SecretKeys } from "@heddle/base/secret-keys";
import { keepAuthority, parseAuthority } from "@heddle/pki/tls-files";
import { readBackupContents } from "@heddle/storage/backup-file";
import { BlobStore } from "@heddle/storage/blob-store";
import { readSnapshotChunks, readSnapshotMeta, snapshotKey } from "@heddle/storage/snapshot-file";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { ControlMachine } from "../control-plane/raft/control-machine.ts";
import { makeNewGroup } from "./new-group.ts";
import type { OfflineReport } from "./offline-report.ts";

export interface RestoreOptions {
  readonly file: string;
  /** A master's data directory; must be missing or empty. */
  readonly dataDirectory: string;
  readonly name: string;
  readonly address: string;
  readonly keys: SecretKeys;
}

/** Makes a new group of one master from a backup. */
export async function restoreBackup(options: RestoreOptions): Promise<OfflineReport> {
  const { dataDirectory, name, address, keys } = options;
  checkMemberName(name);
  checkMemberAddress(address);
  const file = resolve(options.file);
  if (!existsSync(file)) throw new AppError("not_found", `There is no file ${file}.`);
  await checkEmpty(dataDirectory);
  const machine = new ControlMachine(undefined, { keys });
  const meta = await readSnapshotMeta(nodeStorageFiles, file);
  keys.checkHolds(await snapshotKey(nodeStorageFiles, file), file);
  await machine.restore(readSnapshotChunks(nodeStorageFiles, file));
  const { index, term, cluster: before } = meta;
  // The hash of the backup: the new group's event log begins at 0.
  const { hash } = machine.control;
  const directory = join(dataDirectory, "control");
  const draft = `${directory}.restoring`;
  await mkdir(dataDirectory, { recursive: true, mode: 0o700 });
  try {
    const last = { index, term };
    const group = { directory: draft, before, name, address, last, machine, keys };
    const cluster = await makeNewGroup(group);
    const authority = machine.control.secret("authority");
    if (authority)
      await keepAuthority(
        join(dataDirectory, "cluster-ca.pem"),
        parseAuthority(authority, file),
        keys,
      );
    const contents = await restoreContents(file, dataDirectory, keys);
    // Under its name only when it is whole, so that a start never finds half of a group.
    await rename(draft, directory);
    await nodeStorageFiles.syncDirectory(dirname(directory));
    return report({ meta, cluster, name, dataDirectory, machine, hash, contents });
  } catch (error) {
    for (const directory of [draft, join(dataDirectory, "documents")]) {
      await rm(directory, { recursive: true, force: true });
    }
    throw error;
  }
}

async function checkEmpty(dataDirectory: string): Promise<void> {
  const names = await readdir(dataDirectory).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return [];
    throw error;
  });
  if (names.length === 0) return;
  const message = `${dataDirectory} is not empty: it holds ${names.slice(0, 3).join(", ")}. Give a new --data, or move it away.`;
  throw new AppError("conflict", message);
}

/** Returns the digests of those that the backup has. */
async function restoreContents(
  file: string,
  dataDirectory: string,
  keys: SecretKeys,
): Promise<ReadonlySet<string>> {
  const directory = join(dataDirectory, "documents");
  const store = await BlobStore.open({ files: nodeStorageFiles, directory, keys });
  for await (const { digest, file: bytes } of readBackupContents(nodeStorageFiles, file)) {
    if (bytes) await store.putFile(digest, bytes);
  }
  return new Set(store.list().keys());
}

function missingContents(missing: number, dataDirectory: string): string {
  return `The backup does not hold the contents of ${missing} documents: before the start copy the folder documents of a master of the old cluster to ${join(dataDirectory, "documents")}, or they stay unreadable.`;
}

function report(made: {
  readonly meta: { readonly cluster: string; readonly index: number };
  readonly cluster: string;
  readonly name: string;
  readonly dataDirectory: string;
  readonly machine: ControlMachine;
  readonly hash: string;
  readonly contents: ReadonlySet<string>;
}): OfflineReport {
  const { meta, cluster, name, dataDirectory, hash } = made;
  const { state, commands } = made.machine.control;
  const { size: keys } = state.keys;
  const { size: models } = state.models;
  const { size: documents } = state.documents;
  const lacking = [...state.documents.values()].filter(({ digest, parts = [] }) =>
    [digest, ...parts].some((each) => !made.contents.has(each)),
  );
  const missing = lacking.length;
  const record = {
    name,
    data: dataDirectory,
    cluster,
    restored_from: { cluster: meta.cluster, index: meta.index },
    commands,
    keys,
    models,
    documents,
    missing_contents: missing,
    state_hash: hash,
  };
  const lines = [
    `${dataDirectory} holds a new cluster ${cluster} with one master, ${name}.`,
    `Its state is that of the cluster ${meta.cluster} at entry ${meta.index}: ${commands} commands, ${keys} keys, ${models} models, state ${hash}.`,
    `Start ${name} on it; further masters join it with empty directories.`,
  ];
  if (documents > missing)
    lines.splice(2, 0, `It has the contents of ${documents - missing} documents.`);
  if (missing > 0) lines.splice(2, 0, missingContents(missing, dataDirectory));
  return { record, text: lines.join("\n") };
}
