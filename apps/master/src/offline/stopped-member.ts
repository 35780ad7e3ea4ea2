import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import type { SecretKeys } from "@heddle/base/secret-keys";
import { type DirectoryLock, lockDirectory } from "@heddle/consensus/member/directory-lock";
import {
  checkHoldsNoLog,
  type FullIdentity,
  isJoined,
  readIdentity,
} from "@heddle/consensus/member/identity";
import { lostLog } from "@heddle/consensus/replica/lost-log";
import { type OfflineState, readOfflineState } from "@heddle/consensus/replica/offline-state";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { ControlMachine } from "../control-plane/raft/control-machine.ts";

/** A master that does not run, as its data directory knows it; `close` lets go of the directory. */
export interface StoppedMember {
  readonly directory: string;
  readonly identity: FullIdentity;
  readonly state: OfflineState;
  /** Holds the state after the last entry of the log. */
  readonly machine: ControlMachine;
  /** `movedTo` is where the directory is now, if it was renamed meanwhile. */
  close(movedTo?: string): Promise<void>;
}

/**
 * Opens the data directory of a stopped master and reads all of its state. Rejects with:
 * - `conflict` where the master runs;
 * - `not_found` where no master's state is;
 * - `precondition_failed` where the key with which it is encrypted is absent;
 * - `server_error` where a part of it is missing or damaged.
 */
export async function openStoppedMember(
  dataDirectory: string,
  keys: SecretKeys,
): Promise<StoppedMember> {
  const directory = join(dataDirectory, "control");
  await checkHoldsMember(dataDirectory);
  const lock = await lockDirectory(directory);
  try {
    return await readMember(directory, keys, lock);
  } catch (error) {
    await lock.close();
    throw error;
  }
}

async function readMember(
  directory: string,
  keys: SecretKeys,
  lock: DirectoryLock,
): Promise<StoppedMember> {
  const identity = await readIdentity(directory, keys);
  if (!identity || !isJoined(identity)) {
    await checkHoldsNoLog(directory);
    const message = `${directory} belongs to a master that never found its group: it holds no state.`;
    throw new AppError("not_found", message);
  }
  keys.checkHolds(identity.secrets?.key, directory);
  const machine = new ControlMachine(undefined, { keys });
  const onDamaged = (error: AppError) => process.stderr.write(`${error.message}\n`);
  const owner = { cluster: identity.cluster, node: String(identity.id) };
  const storage = { files: nodeStorageFiles, directory, owner, onDamaged };
  const state = await readOfflineState(storage, machine);
  if (state.isEmpty && !identity.beginning) throw lostLog(directory);
  if (state.isEmpty) throw new AppError("not_found", `${directory} holds no state yet.`);
  return { directory, identity, state, machine, close: (movedTo) => lock.close(movedTo) };
}

/** A directory of `heddle up` holds those of its masters, one of which was meant. */
async function checkHoldsMember(dataDirectory: string): Promise<void> {
  const names = await readdir(dataDirectory).catch(() => undefined);
  if (names?.includes("control")) return;
  const masters = names?.filter((name) => name.startsWith("master-")) ?? [];
  const fix =
    masters.length > 0
      ? `Give one of its masters' directories: ${masters.map((name) => join(dataDirectory, name)).join(", ")}`
      : "Give the --data of a master";
  throw new AppError("not_found", `${dataDirectory} holds no master's state. ${fix}.`);
}
