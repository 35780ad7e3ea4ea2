import { createHash } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { rm } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { pipeline } from "node:stream/promises";
import { checkNewFile } from "@heddle/base/new-file";
import { protectionText, type SecretKeys } from "@heddle/base/secret-keys";
import {
  type BackupContent,
  backupBytes,
  checkBackup,
  contentsText,
} from "@heddle/storage/backup-file";
import { BlobStore } from "@heddle/storage/blob-store";
import { writeSnapshotFile } from "@heddle/storage/snapshot-file";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import type { OfflineReport } from "./offline-report.ts";
import { openStoppedMember } from "./stopped-member.ts";

/** Writes the whole state of a stopped master to a file. */
export async function backupStopped(
  dataDirectory: string,
  file: string,
  keys: SecretKeys,
): Promise<OfflineReport> {
  const path = resolve(file);
  checkNewFile(path);
  const member = await openStoppedMember(dataDirectory, keys);
  try {
    const { last, members, unconfirmed } = member.state;
    const { cluster } = member.identity;
    // The configuration of a backup is never read: a restore makes a group of its own.
    const meta = { ...last, cluster, detail: { members } };
    const [state, draft] = [`${path}.state.tmp`, `${path}.tmp`];
    await writeSnapshotFile(nodeStorageFiles, state, meta, member.machine.snapshot());
    const digests = member.machine.control.documents.digests.keys();
    const contents = contentsIn(join(dataDirectory, "documents"), digests, keys);
    try {
      await pipeline(
        backupBytes(createReadStream(state), contents),
        createWriteStream(draft, { mode: 0o600, flush: true }),
      );
    } finally {
      await rm(state, { force: true });
    }
    const counts = await checkBackup(nodeStorageFiles, draft);
    await nodeStorageFiles.rename(draft, path);
    await nodeStorageFiles.syncDirectory(dirname(path));
    const { commands, hash, secretsKey } = member.machine.control;
    const unsure =
      unconfirmed > 0
        ? `\nThe last ${unconfirmed} entries were not known here to be committed; they are in it.`
        : "";
    return {
      record: {
        file: path,
        cluster,
        index: last.index,
        term: last.term,
        sha256: await digestOf(path),
        secrets_key: secretsKey ?? null,
        contents: counts.contents,
        missing_contents: counts.missing,
        unconfirmed_entries: unconfirmed,
        commands,
        state_hash: hash,
      },
      text: `${path} holds the state of the cluster ${cluster} up to entry ${last.index} (${commands} commands, state ${hash}).${unsure}\n${contentsText(counts)}\n${protectionText(secretsKey)}`,
    };
  } finally {
    await member.close();
  }
}

async function* contentsIn(
  directory: string,
  digests: Iterable<string>,
  keys: SecretKeys,
): AsyncGenerator<BackupContent, void> {
  const store = await BlobStore.open({ files: nodeStorageFiles, directory, keys });
  for (const digest of digests) {
    yield { digest, file: await store.file(digest).catch(() => undefined) };
  }
}

async function digestOf(path: string): Promise<string> {
  const hash = createHash("sha256");
  await pipeline(createReadStream(path), hash);
  return hash.digest("hex");
}
