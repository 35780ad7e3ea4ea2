import { decayedUsage } from "@heddle/scheduler/cluster/fair-share";
import { DEFAULT_SETTINGS, type TaskRequest } from "@heddle/scheduler/model";
import type { ProjectRecord, UsageRecord } from "./records.ts";

/** The window over which GPU-hours are counted. */
export const ACCOUNTING_WINDOW_MS = 30 * 24 * 3_600_000;
const HALF_LIFE_MS = DEFAULT_SETTINGS.fairShareHalfLifeMs;
/** How often the accounts of projects with holdings are brought up to date by an active leader. */
const SETTLE_EVERY_MS = 60_000;
/**
 * A longer gap means that there was no leader. Usage after it is not counted, because workers end
 * their tasks when their leases expire.
 */
const MAX_UNSETTLED_MS = 300_000;

/** The holdings that one command starts or ends, written once per project at its end. */
export class AccountChanges {
  readonly #projects: Map<string, ProjectRecord>;
  readonly #atMs: number;
  readonly #held = new Map<string, { gpuMilli: number; cpuMilli: number; memoryMib: number }>();

  constructor(projects: Map<string, ProjectRecord>, atMs: number) {
    this.#projects = projects;
    this.#atMs = atMs;
  }

  hold(project: string, request: TaskRequest, sign: 1 | -1): void {
    const held = this.#held.get(project) ?? { gpuMilli: 0, cpuMilli: 0, memoryMib: 0 };
    held.gpuMilli += sign * request.gpus * request.gpuMilli;
    held.cpuMilli += sign * request.scalars.cpuMilli;
    held.memoryMib += sign * request.scalars.memoryMib;
    this.#held.set(project, held);
  }

  /** Updates accounts with long-running holdings. */
  settle(): void {
    for (const { name, usage } of this.#projects.values()) {
      if ((accountDueMs(usage) ?? Number.POSITIVE_INFINITY) > this.#atMs) continue;
      if (!this.#held.has(name)) this.#held.set(name, { gpuMilli: 0, cpuMilli: 0, memoryMib: 0 });
    }
  }

  write(): void {
    for (const [name, { gpuMilli, cpuMilli, memoryMib }] of this.#held) {
      const project = this.#projects.get(name) ?? newProject(name, this.#atMs);
      const usage = usageAt(project.usage, this.#atMs);
      this.#projects.set(name, {
        ...project,
        usage: {
          ...usage,
          heldGpuMilli: usage.heldGpuMilli + gpuMilli,
          heldCpuMilli: usage.heldCpuMilli + cpuMilli,
          heldMemoryMib: usage.heldMemoryMib + memoryMib,
        },
      });
    }
  }
}

/** When the account must be updated; undefined if it holds nothing. */
export function accountDueMs(usage: UsageRecord): number | undefined {
  const holds = usage.heldGpuMilli > 0 || usage.heldCpuMilli > 0 || usage.heldMemoryMib > 0;
  return holds ? usage.asOfMs + SETTLE_EVERY_MS : undefined;
}

/** A project without configuration: weight 1 and no quota. */
export function newProject(name: string, atMs: number): ProjectRecord {
  return {
    name,
    weight: 1,
    quota: {},
    usage: {
      asOfMs: atMs,
      heldGpuMilli: 0,
      heldCpuMilli: 0,
      heldMemoryMib: 0,
      decayedGpuMilliMs: 0,
      decayedCpuMilliMs: 0,
      decayedMemoryMibMs: 0,
      windowStartMs: atMs,
      windowGpuMilliMs: 0,
    },
  };
}

/**
 * The account up to date: holdings count as used for as long as there was a leader. Amounts are
 * integers.
 */
export function usageAt(usage: UsageRecord, atMs: number): UsageRecord {
  const elapsedMs = Math.max(0, atMs - usage.asOfMs);
  if (elapsedMs <= MAX_UNSETTLED_MS) return countedTo(usage, atMs);
  const counted = countedTo(usage, usage.asOfMs + MAX_UNSETTLED_MS);
  const { heldGpuMilli, heldCpuMilli, heldMemoryMib } = usage;
  const idle = { ...counted, heldGpuMilli: 0, heldCpuMilli: 0, heldMemoryMib: 0 };
  return { ...countedTo(idle, atMs), heldGpuMilli, heldCpuMilli, heldMemoryMib };
}

function countedTo(usage: UsageRecord, atMs: number): UsageRecord {
  const elapsedMs = Math.max(0, atMs - usage.asOfMs);
  const decayed = decayedUsage(
    {
      gpuMilliMs: usage.decayedGpuMilliMs,
      cpuMilliMs: usage.decayedCpuMilliMs,
      memoryMibMs: usage.decayedMemoryMibMs,
      asOfMs: usage.asOfMs,
    },
    {
      gpuMilli: usage.heldGpuMilli,
      cpuMilli: usage.heldCpuMilli,
      memoryMib: usage.heldMemoryMib,
    },
    Math.max(atMs, usage.asOfMs),
    HALF_LIFE_MS,
  );
  const windows = Math.floor((atMs - usage.windowStartMs) / ACCOUNTING_WINDOW_MS);
  const isNew = windows > 0;
  const windowStartMs = usage.windowStartMs + Math.max(0, windows) * ACCOUNTING_WINDOW_MS;
  const countedMs = isNew ? Math.min(elapsedMs, atMs - windowStartMs) : elapsedMs;
  return {
    ...usage,
    asOfMs: decayed.asOfMs,
    decayedGpuMilliMs: Math.round(decayed.gpuMilliMs),
    decayedCpuMilliMs: Math.round(decayed.cpuMilliMs),
    decayedMemoryMibMs: Math.round(decayed.memoryMibMs),
    windowStartMs,
    windowGpuMilliMs: (isNew ? 0 : usage.windowGpuMilliMs) + usage.heldGpuMilli * countedMs,
  };
}
