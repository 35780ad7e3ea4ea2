import { BOUNDS_STORAGE } from "./cluster-version.ts";
import { type Refusal, refuse } from "./command.ts";
import type { ProjectRecord } from "./jobs/records/records.ts";

/** What of a project counts for its storage quota. */
const STORAGE_KINDS = ["documents", "artifacts", "checkpoints"] as const;
type StorageKind = (typeof STORAGE_KINDS)[number];

/** The bytes of each kind. */
type StorageUse = Readonly<Record<StorageKind, number>>;

const NONE: StorageUse = { documents: 0, artifacts: 0, checkpoints: 0 };

/** The bytes that each project keeps. It follows from the state; the indexes maintain it. */
export class ProjectStorage {
  readonly #uses = new Map<string, StorageUse>();

  add(project: string, kind: StorageKind, bytes: number): void {
    if (bytes === 0) return;
    const known = this.useOf(project);
    const use = { ...known, [kind]: known[kind] + bytes };
    if (storedBytesOf(use) === 0) this.#uses.delete(project);
    else this.#uses.set(project, use);
  }

  /** Forgets a kind, which is then counted again. */
  clear(kind: StorageKind): void {
    for (const [project, use] of [...this.#uses]) this.add(project, kind, -use[kind]);
  }

  useOf(project: string): StorageUse {
    return this.#uses.get(project) ?? NONE;
  }

  /** Projects that keep something. */
  get projects(): Iterable<string> {
    return this.#uses.keys();
  }
}

export function storedBytesOf(use: StorageUse): number {
  return STORAGE_KINDS.reduce((sum, kind) => sum + use[kind], 0);
}

/** The quotas, what counts for them, and the cluster version. */
interface StorageQuotas {
  readonly projects: ReadonlyMap<string, Pick<ProjectRecord, "quota">>;
  readonly storage: ProjectStorage;
  readonly version: number;
}

/** Why the project may not keep this many more bytes. */
export function storageRefusal(
  { projects, storage, version }: StorageQuotas,
  project: string,
  more: number,
): Refusal | undefined {
  const limit = projects.get(project)?.quota.storageBytes;
  if (limit === undefined || version < BOUNDS_STORAGE) return undefined;
  const kept = storedBytesOf(storage.useOf(project));
  if (kept + more <= limit) return undefined;
  const has = `the project ${project} keeps ${kept} bytes, this needs ${more} more, and its storage quota is ${limit}`;
  return refuse("insufficient_quota", `${has}; ${STORAGE_ADVICE}`);
}

/** How a project gets room. */
const STORAGE_ADVICE =
  "delete files or responses, wait until ended jobs are forgotten, or raise the quota";
