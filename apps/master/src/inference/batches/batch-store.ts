import { AppError, toAppError } from "@heddle/base/errors";
import type { ApiBatch, BatchesQuery, BatchPage } from "@heddle/contracts/api/inference/batches";
import { settingValue } from "@heddle/contracts/api/settings";
import { Inject } from "@nestjs/common";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import {
  DOCUMENTS,
  type DocumentPart,
  type DocumentPlace,
  type Documents,
} from "../../documents/documents.ts";

/** The progress of a batch, which its callers do not see. */
export interface BatchProgress {
  /** Every line before this one has its result. */
  readonly base: number;
  /** Lines after the base that have their results, in order. */
  readonly done: readonly number[];
  /** The results that are no file yet. */
  readonly output: readonly DocumentPart[];
  readonly errors: readonly DocumentPart[];
}

/** A batch as it is stored. */
export interface StoredBatch {
  readonly batch: ApiBatch;
  /** The key that created it, by whose permissions and limits its lines run. */
  readonly key: string;
  /** The subject whose storage quota it counts for; absent in those of earlier builds. */
  readonly project?: string | undefined;
  readonly outputExpiresAfterS: number | undefined;
  /** The run of a master that works on it; another one takes over by replacing it. */
  readonly run: string | undefined;
  readonly progress: BatchProgress;
  /** Its results become files: they count there, and not here too. */
  readonly isEnding?: boolean | undefined;
}

/** With its version, for compare-and-set. */
export interface KeptBatch {
  readonly stored: StoredBatch;
  readonly version: number;
}

export const NO_PROGRESS: BatchProgress = { base: 0, done: [], output: [], errors: [] };

const DAY_MS = 86_400_000;
/** Changes of others between a read and its write that are tolerated. */
const MAX_TRIES = 8;
const ENDED: readonly ApiBatch["status"][] = ["completed", "failed", "expired", "cancelled"];

/** Batches in the masters' store. A caller sees those of its key and its successors in its project. */
export class BatchStore {
  readonly #documents: Documents;
  readonly #control: ControlPlane;

  constructor(
    @Inject(DOCUMENTS) documents: Documents,
    @Inject(CONTROL_PLANE) control: ControlPlane,
  ) {
    this.#documents = documents;
    this.#control = control;
  }

  async create(place: DocumentPlace, stored: StoredBatch): Promise<void> {
    await this.#put(place, stored, 0, performance.now());
  }

  /** Throws `not_found` where the owner has no such batch. */
  async get(place: DocumentPlace, id: string): Promise<KeptBatch> {
    const found = isId(id) ? await this.#documents.get("batch", id, place) : undefined;
    if (!found) throw notFound(id);
    const stored = JSON.parse(Buffer.from(found.content).toString()) as StoredBatch;
    return { stored, version: found.record.version };
  }

  async list(place: DocumentPlace, query: BatchesQuery): Promise<BatchPage> {
    const range = { ...query, order: "desc" } as const;
    const { records, hasMore } = await this.#documents.list("batch", place, range);
    const data: ApiBatch[] = [];
    for (const { id } of records) data.push((await this.get(place, id)).stored.batch);
    return {
      object: "list",
      data,
      first_id: data[0]?.id ?? null,
      last_id: data.at(-1)?.id ?? null,
      has_more: hasMore,
    };
  }

  /**
   * Changes the batch as it is now, whatever others change meanwhile. `change` returns undefined to
   * leave it; `sinceMs` is when the first new part was stored.
   */
  async update(
    place: DocumentPlace,
    id: string,
    change: (stored: StoredBatch) => StoredBatch | undefined,
    sinceMs = performance.now(),
  ): Promise<StoredBatch> {
    for (let tries = 1; ; tries++) {
      const { stored, version } = await this.get(place, id);
      const changed = change(stored);
      if (!changed) return stored;
      try {
        await this.#put(place, changed, version, sinceMs);
        return changed;
      } catch (thrown) {
        const isTaken = toAppError(thrown).code === "precondition_failed";
        if (!isTaken || tries >= MAX_TRIES) throw thrown;
      }
    }
  }

  /** A batch that has ended is kept for some days; a running one until it has ended. */
  async #put(place: DocumentPlace, stored: StoredBatch, expectedVersion: number, sinceMs: number) {
    const { batch, progress, isEnding } = stored;
    const all = [...progress.output, ...progress.errors];
    const parts = isEnding ? all.map((part) => ({ ...part, bytes: 0 })) : all;
    const state = batch.cancelling_at === null ? OPEN : CANCELLED;
    const days = settingValue(this.#control.state.settings, "response_days");
    const isOpen = !hasBatchEnded(batch);
    await this.#documents.put(
      {
        kind: "batch",
        id: batch.id,
        ...place,
        metadata: isOpen ? { state } : {},
        expiresAtMs: isOpen ? undefined : Date.now() + days * DAY_MS,
      },
      Buffer.from(JSON.stringify(stored)),
      { expectedVersion, parts, sinceMs },
    );
  }
}

/** What the metadata of a batch say that has not ended, and of one that was cancelled. */
export const OPEN = "open";
export const CANCELLED = "cancelled";

export function hasBatchEnded({ status }: ApiBatch): boolean {
  return ENDED.includes(status);
}

const MAX_ID_CHARS = 128;

function isId(id: string): boolean {
  return /^[A-Za-z0-9_-]{1,128}$/.test(id);
}

function notFound(id: string): AppError {
  return new AppError("not_found", `No batch has the id '${id.slice(0, MAX_ID_CHARS)}'.`);
}
