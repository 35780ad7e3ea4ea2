import { existsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { AppError } from "@heddle/base/errors";
import { protectionText, type SecretKeys } from "@heddle/base/secret-keys";
import { writeSnapshotFile } from "@heddle/storage/snapshot-file";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { openStoppedMember } from "./stopped-member.ts";

/** Writes the whole state of a stopped master to a file; returns what to tell of it. */
export async function backupStopped(
  dataDirectory: string,
  file: string,
  keys: SecretKeys,
): Promise<string> {
  const path = resolve(file);
  if (existsSync(path)) throw new AppError("conflict", `${path} exists. Give another --file.`);
  const member = await openStoppedMember(dataDirectory, keys);
  try {
    const { last, members, unconfirmed } = member.state;
    const { cluster } = member.identity;
    // Nobody reads the configuration of a backup: what is made of it is a group of its own.
    const meta = { ...last, cluster, detail: { members } };
    const draft = `${path}.tmp`;
    await writeSnapshotFile(nodeStorageFiles, draft, meta, member.machine.snapshot());
    await nodeStorageFiles.rename(draft, path);
    await nodeStorageFiles.syncDirectory(dirname(path));
    const { commands, hash, secretsKey } = member.machine.control;
    const unsure =
      unconfirmed > 0
        ? `\nThe last ${unconfirmed} entries were not known here to be committed; they are in it.`
        : "";
    return `${path} holds the state of the cluster ${cluster} up to entry ${last.index} (${commands} commands, state ${hash}).${unsure}\n${protectionText(secretsKey)}`;
  } finally {
    await member.close();
  }
}
