import { abortableDelay } from "@heddle/base/async/abortable-delay";
import { toAppError } from "@heddle/base/errors";
import { isLive } from "@heddle/control/documents/documents-state-machine";
import type { Log } from "@heddle/observability/logger";
import type { BlobStore } from "@heddle/storage/blob-store";
import { isActiveLeader } from "../control-plane/active-leader.ts";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import { propose } from "../control-plane/propose.ts";
import type { ContentReplicas } from "./content-replicas.ts";

/** A content without a record is removed after this time, in which a put must have proposed it. */
export const CONTENT_GRACE_MS = 15 * 60_000;
const STEP_MS = 2_000;
/** The interval between checks of all contents; in between only contents that were put are checked. */
const SCAN_MS = 60_000;
/** The most contents put between two steps; above it all contents are checked. */
const MAX_PUT = 10_000;
/** Bytes that one step fetches or verifies, up to one content more. */
const STEP_BYTES = 32 * 2 ** 20;
/** The longest wait after no master gave a content; the first is a step, each twice the last. */
const MAX_RETRY_MS = 60_000;
/** The cost of a content beside its bytes. */
const CONTENT_COST_BYTES = 64 * 1024;
/** The interval between two runs that verify all contents. */
const VERIFY_PAUSE_MS = 24 * 3_600_000;

/** The log message of a run that verified all; operators who replace a secrets key wait for it. */
const VERIFIED = "this master's documents are intact, and none is from before its secrets key";

interface DocumentUpkeepOptions {
  readonly store: BlobStore;
  readonly replicas: ContentReplicas;
  readonly control: ControlPlane;
  readonly log: Log;
  /** Monotonic, in milliseconds. */
  readonly now?: (() => number) | undefined;
}

/**
 * Keeps this master's disk in step with the records: fetches missing contents, removes those
 * without a record, and verifies all once a day. The leader removes expired records.
 */
export class DocumentUpkeep {
  readonly #options: DocumentUpkeepOptions;
  readonly #now: () => number;
  readonly #stop = new AbortController();
  readonly #unsubscribe: () => void;
  /** Digests of the contents whose records were put since the last step. */
  readonly #put = new Set<string>();
  #scanAtMs = 0;
  #missing: ReadonlyMap<string, MissingContent> = new Map();
  #unused: ReadonlyMap<string, UnusedContent> = new Map();
  /** The contents of the present run that are still to be verified. */
  #unverified: string[] = [];
  #isIntact = true;
  #verifyAtMs = 0;
  swept = 0;

  constructor(options: DocumentUpkeepOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    this.#unsubscribe = options.control.onApplied((command) => {
      if (command?.type === "document.put") {
        const { digest, parts = [] } = command.document;
        for (const each of [digest, ...parts]) this.#put.add(each);
      }
      if (command === undefined || this.#put.size > MAX_PUT) this.#scanAtMs = 0;
      if (this.#put.size > MAX_PUT) this.#put.clear();
    });
  }

  /** Contents of records that are not on this disk. */
  get missing(): number {
    return this.#missing.size;
  }

  /** Runs until `close`. */
  async run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await this.step().catch((error: unknown) => {
        this.#options.log.warn({ err: toAppError(error).message }, "documents: tried again");
      });
      await abortableDelay(STEP_MS, signal, { ref: false });
    }
  }

  close(): void {
    this.#stop.abort();
    this.#unsubscribe();
  }

  async step(): Promise<void> {
    await this.#expire();
    const isScan = this.#now() >= this.#scanAtMs;
    if (isScan) this.#scanAtMs = this.#now() + SCAN_MS;
    const { digests } = this.#options.control.documents;
    const suspects = isScan ? [...digests.keys()] : [...this.#missing.keys(), ...this.#put];
    this.#put.clear();
    await this.#fetchMissing(suspects);
    if (isScan) await this.#sweep();
    await this.#verify();
  }

  async #expire(): Promise<void> {
    const { control } = this.#options;
    const nowMs = Date.now();
    const first = control.documents.firstDue;
    if (!first || isLive(first, nowMs) || !isActiveLeader(control)) return;
    await propose(control, { type: "documents.expire", atMs: nowMs });
  }

  /** A content that has just begun to be missing may be on its way. */
  async #fetchMissing(suspects: readonly string[]): Promise<void> {
    const { control, store, replicas } = this.#options;
    const now = this.#now();
    const missing = new Map<string, MissingContent>();
    const isNew = { dueMs: now + STEP_MS, waitMs: STEP_MS };
    for (const digest of suspects) {
      const isMissing = control.documents.digests.has(digest) && !store.has(digest);
      if (isMissing) missing.set(digest, this.#missing.get(digest) ?? isNew);
    }
    this.#missing = missing;
    const due = [...missing].flatMap(([digest, { dueMs }]) => (dueMs <= now ? [digest] : []));
    const { failed } = await this.#inStep(due, (digest) => replicas.heal(digest));
    for (const digest of failed) {
      const waitMs = Math.min(MAX_RETRY_MS, 2 * (missing.get(digest)?.waitMs ?? 0));
      missing.set(digest, { dueMs: now + waitMs, waitMs });
    }
  }

  /** Processes contents up to the bytes of one step. */
  async #inStep(
    digests: readonly string[],
    work: (digest: string) => Promise<{ readonly byteLength: number }>,
  ): Promise<{ readonly taken: number; readonly failed: readonly string[] }> {
    const failed: string[] = [];
    let [taken, bytes, fault] = [0, 0, ""];
    for (const digest of digests) {
      if (bytes >= STEP_BYTES || this.#stop.signal.aborted) break;
      taken++;
      bytes += CONTENT_COST_BYTES;
      try {
        bytes += (await work(digest)).byteLength;
      } catch (error) {
        failed.push(digest);
        fault = toAppError(error).message;
      }
    }
    const text = "contents of documents are missing on this master's disk, or damaged";
    if (failed.length > 0) this.#options.log.warn({ count: failed.length, err: fault }, text);
    return { taken, failed };
  }

  async #sweep(): Promise<void> {
    const { control, store } = this.#options;
    const now = this.#now();
    const before = this.#unused;
    const unused = new Map<string, UnusedContent>();
    for (const [digest, put] of store.list()) {
      if (control.documents.digests.has(digest)) continue;
      const known = before.get(digest);
      unused.set(digest, known?.put === put ? known : { put, sinceMs: now });
    }
    this.#unused = unused;
    const isEnded = ({ sinceMs }: UnusedContent) => now - sinceMs >= CONTENT_GRACE_MS;
    const over = [...unused].filter(([, content]) => isEnded(content));
    if (over.length === 0) return;
    await control.group?.readBarrier();
    for (const [digest, { put }] of over) {
      if (control.documents.digests.has(digest)) continue;
      await store.delete(digest, put);
      this.swept++;
    }
  }

  async #verify(): Promise<void> {
    const { store, replicas, log } = this.#options;
    if (this.#unverified.length === 0) {
      if (this.#now() < this.#verifyAtMs) return;
      this.#isIntact = true;
      this.#unverified = [...store.list().keys()];
      this.#verifyAtMs = this.#now() + VERIFY_PAUSE_MS;
    }
    const { taken, failed } = await this.#inStep(this.#unverified, (digest) =>
      replicas.verify(digest),
    );
    this.#unverified = this.#unverified.slice(taken);
    this.#isIntact &&= failed.length === 0;
    if (this.#unverified.length === 0 && this.#isIntact) log.info({}, VERIFIED);
  }
}

/** When a content is fetched, at the earliest, and how long the last wait for it was. */
interface MissingContent {
  readonly dueMs: number;
  readonly waitMs: number;
}

/** A content without a record: the put that was seen last, and since when it has none. */
interface UnusedContent {
  readonly put: number;
  readonly sinceMs: number;
}
