import { existsSync, readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import type { ResourceLimit } from "@heddle/contracts/generated/heddle/v1/ResourceLimit";

/** The files in which Linux lists the control groups of this process. */
export interface ControlGroupFiles {
  /** Names the process's group in each hierarchy. */
  readonly membership: string;
  readonly root: string;
}

const FILES: ControlGroupFiles = { membership: "/proc/self/cgroup", root: "/sys/fs/cgroup" };
/** Version 1 writes a number of this size for no limit. */
const UNLIMITED_BYTES = 2 ** 60;

/**
 * The limits of the process's control groups, version 1 and 2, as of a container or a service;
 * empty for none.
 */
export function resourceLimits({ membership, root }: ControlGroupFiles = FILES): ResourceLimit[] {
  const limits = new Map<string, ResourceLimit>();
  for (const line of (read(membership) ?? "").split("\n")) {
    const [, controllers = "", path] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    if (path === undefined) continue;
    for (const folder of hierarchiesOf(root, controllers)) {
      for (const group of enclosingGroups(folder, path)) {
        const limit = limitOf(group);
        if (limit) limits.set(limit.id ?? "", { ...limits.get(limit.id ?? ""), ...limit });
      }
    }
  }
  return [...limits.values()];
}

/** Version 2 has one hierarchy without a list of controllers, possibly beside version 1's. */
function hierarchiesOf(root: string, controllers: string): string[] {
  if (controllers === "") return [root, join(root, "unified")];
  const names = controllers.split(",").filter((name) => name === "memory" || name === "cpu");
  return names.map((name) => join(root, name));
}

/** The group's directory and its ancestors. A container may see only its own group. */
function enclosingGroups(hierarchy: string, path: string): string[] {
  const own = join(hierarchy, path);
  const isSeen = !path.includes("..") && existsSync(own);
  const groups: string[] = [];
  for (let at = isSeen ? own : hierarchy; at.length >= hierarchy.length; at = dirname(at)) {
    groups.push(at);
  }
  return groups;
}

function limitOf(group: string): ResourceLimit | undefined {
  const memory = Number(
    read(join(group, "memory.max")) ?? read(join(group, "memory.limit_in_bytes")),
  );
  const memoryBytes = memory > 0 && memory < UNLIMITED_BYTES ? memory : 0;
  const [quota, period] = (read(join(group, "cpu.max")) ?? versionOneQuota(group)).split(" ");
  const cores = Number(quota) / Number(period);
  const cpuMilli = cores > 0 ? Math.max(1, Math.floor(cores * 1_000)) : 0;
  const place = statSync(group, { throwIfNoEntry: false });
  if (!place || (memoryBytes === 0 && cpuMilli === 0)) return undefined;
  return { id: `${place.dev}:${place.ino}`, memoryBytes, cpuMilli };
}

function versionOneQuota(group: string): string {
  return `${read(join(group, "cpu.cfs_quota_us"))} ${read(join(group, "cpu.cfs_period_us"))}`;
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return undefined;
  }
}
