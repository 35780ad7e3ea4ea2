import { existsSync } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { AppError } from "@heddle/base/errors";
import { checkMemberAddress } from "@heddle/base/network/member-address";
import type { SecretKeys } from "@heddle/base/secret-keys";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { makeNewGroup } from "./new-group.ts";
import type { OfflineReport } from "./offline-report.ts";
import { openStoppedMember, type StoppedMember } from "./stopped-member.ts";

export interface RecoverOptions {
  readonly dataDirectory: string;
  /** host:port; the address that the group knew where it is absent. */
  readonly address: string | undefined;
  readonly keys: SecretKeys;
  /** Without it nothing is done but to say what would be. */
  readonly confirmed: boolean;
}

export interface RecoverOutcome extends OfflineReport {
  readonly done: boolean;
}

/**
 * Makes one stopped survivor of a group that lost its majority a group of one under a new cluster
 * id. The directory that was is kept beside the new one.
 */
export async function recoverGroup(options: RecoverOptions): Promise<RecoverOutcome> {
  const { dataDirectory, confirmed, keys } = options;
  if (options.address !== undefined) checkMemberAddress(options.address);
  const paths = pathsOf(dataDirectory);
  await finishInterrupted(paths);
  const member = await openStoppedMember(dataDirectory, keys);
  let aside: string | undefined;
  try {
    const warning = consequences(member);
    if (!confirmed) {
      const text = `${warning}\nNothing was done. Give --yes to do it.`;
      return { done: false, record: recordOf(member), text };
    }
    const { name, cluster: before } = member.identity;
    const known = member.state.members.find((each) => each.name === name)?.address;
    const address = options.address ?? known ?? "";
    const { machine } = member;
    await rm(paths.draft, { recursive: true, force: true });
    const last = { ...member.state.last };
    const group = { directory: paths.draft, before, name, address, last, machine, keys };
    const cluster = await makeNewGroup(group);
    await rename(paths.draft, paths.ready);
    const kept = `${paths.current}.before-${cluster.slice(-8)}`;
    await rename(paths.current, kept);
    aside = kept;
    await rename(paths.ready, paths.current);
    await nodeStorageFiles.syncDirectory(dataDirectory);
    const text = `${warning}\n${report(member, cluster, aside)}`;
    return { done: true, record: recordOf(member, { cluster, aside }), text };
  } finally {
    await member.close(aside);
  }
}

interface Paths {
  readonly current: string;
  /** Being made. */
  readonly draft: string;
  /** Whole, and about to take the place of `current`. */
  readonly ready: string;
}

function pathsOf(dataDirectory: string): Paths {
  const current = join(dataDirectory, "control");
  return { current, draft: `${current}.recovering`, ready: `${current}.recovered` };
}

/** A recovery that was cut off between its two last steps is brought to its end. */
async function finishInterrupted({ current, ready }: Paths): Promise<void> {
  if (!existsSync(ready)) return;
  if (existsSync(current)) await rm(ready, { recursive: true });
  else await rename(ready, current);
}

/**
 * Throws `conflict` where a recovery was cut off. A start there would find no state, and join the
 * others or found a group as if it were new.
 */
export function checkNoRecoveryUnderWay(dataDirectory: string): void {
  const { current, ready } = pathsOf(dataDirectory);
  if (existsSync(current) || !existsSync(ready)) return;
  const message = `A recovery of ${dataDirectory} was interrupted. Run it again: heddle cluster recover --data ${dataDirectory} --yes`;
  throw new AppError("conflict", message);
}

function recordOf(
  { identity, state, directory }: StoppedMember,
  made?: { readonly cluster: string; readonly aside: string },
): OfflineReport["record"] {
  const { name, cluster } = identity;
  return {
    done: made !== undefined,
    name,
    data: dirname(directory),
    cluster: made?.cluster ?? null,
    recovered_from: { cluster, index: state.last.index },
    unconfirmed_entries: state.unconfirmed,
    lost_masters: otherMasters({ identity, state }),
    kept_in: made?.aside ?? null,
  };
}

function otherMasters({ identity, state }: Pick<StoppedMember, "identity" | "state">): string[] {
  return state.members.map(({ name }) => name).filter((name) => name !== identity.name);
}

function consequences({ identity, state }: StoppedMember): string {
  const others = otherMasters({ identity, state });
  if (others.length === 0) {
    return `${identity.name} is the only master of its group, the cluster ${identity.cluster}; its log ends at entry ${state.last.index}. Nothing is lost, and it needs no recovery: start it. To recover gives it a new cluster id, and no more.`;
  }
  const lines = [
    `${identity.name} was one of ${state.members.length} masters of the cluster ${identity.cluster}; its log ends at entry ${state.last.index}.`,
    "To recover makes it a group of one, under a new cluster id, with the state that it has:",
    "- changes that only other masters had are lost, answered ones too;",
    `- the last ${state.unconfirmed} entries, which it did not know to be committed, are kept;`,
    "- backups, and the numbers of entries, continue from here; other masters join again, empty.",
  ];
  lines.push(
    `Never start ${others.join(" or ")} on the old data again: this group refuses them, but a majority of them would continue as the old one beside it. Empty their directories.`,
  );
  return lines.join("\n");
}

function report({ identity, directory }: StoppedMember, cluster: string, aside: string): string {
  return `Done: ${directory} is ${identity.name} of the new cluster ${cluster}. What it held before is in ${aside}; delete that when the cluster works.`;
}
