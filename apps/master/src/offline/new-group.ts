import { randomBytes } from "node:crypto";
import { nextClusterId } from "@heddle/base/cluster-id";
import type { SecretKeys } from "@heddle/base/secret-keys";
import { writeIdentity } from "@heddle/consensus/member/identity";
import { newMemberKey } from "@heddle/consensus/member/member-key";
import type { OfflineState } from "@heddle/consensus/replica/offline-state";
import { foundGroup } from "@heddle/consensus/replica/offline-state";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import type { ControlMachine } from "../control-plane/raft/control-machine.ts";

export interface NewGroup {
  /** Will hold the identity, the log and the snapshots; empty or missing. */
  readonly directory: string;
  /** The id of the cluster whose state it is. */
  readonly before: string;
  readonly name: string;
  /** host:port where masters that join reach it. */
  readonly address: string;
  /** The position whose state the machine holds. */
  readonly last: OfflineState["last"];
  readonly machine: ControlMachine;
  readonly keys: SecretKeys;
}

/**
 * Makes the files of a group of one that continues from a known state; returns the cluster's id.
 * - The group is the next incarnation of the cluster: nodes that know it refuse the previous one.
 * - Its nonce is new, so no member of the previous group is taken for one of this group.
 */
export async function makeNewGroup(group: NewGroup): Promise<string> {
  const { directory, before, name, address, last, machine, keys } = group;
  const cluster = nextClusterId(before, Date.now(), randomBytes(8).toString("hex"));
  // The new incarnation has an event log of its own.
  machine.control.beginEvents();
  const { nonce, key } = newMemberKey();
  const owner = { cluster, node: "1" };
  const onDamaged = () => undefined;
  const storage = { files: nodeStorageFiles, directory, owner, onDamaged };
  await foundGroup(storage, { id: 1, name, address, nonce }, last, machine.snapshot());
  const { secretsKey } = machine.control;
  const secrets = secretsKey === undefined ? {} : { secrets: { key: secretsKey, isClean: true } };
  const own = { version: 1, name, nonce, key, cluster, id: 1, incarnation: 0 } as const;
  await writeIdentity(directory, { ...own, ...secrets }, keys);
  return cluster;
}
