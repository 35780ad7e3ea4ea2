import { randomUUID } from "node:crypto";
import { resolvesWithin } from "@heddle/base/async/resolves-within";
import { AppError, toAppError } from "@heddle/base/errors";
import type { ControlCommand } from "@heddle/control/command";
import { type DocumentRecord, documentKey } from "@heddle/control/documents/records";
import type { Logger } from "@heddle/observability/logger";
import { Inject, type OnApplicationBootstrap, type OnModuleDestroy } from "@nestjs/common";
import { LOGGER, MASTER_CONFIG } from "../../config/config.module.ts";
import type { MasterConfig } from "../../config/config.ts";
import { isActiveLeader } from "../../control-plane/active-leader.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { DEFAULT_PROJECT } from "../../http/limits/call-reservation.ts";
import { FileStore } from "../files/file-store.ts";
import { BatchCalls } from "./batch-calls.ts";
import { BatchRun } from "./batch-run.ts";
import { BatchStore, CANCELLED, OPEN } from "./batch-store.ts";

const POLL_MS = 250;
/** Batches that run at once; further ones stay `validating` until one has ended. */
const MAX_RUNNING = 32;
const MAX_RUNNING_OF_OWNER = 2;
/** After a run that failed for a reason that may pass; twice as long after each further one. */
const RETRY_MS = 5_000;
const MAX_RETRY_MS = 600_000;
/** What an ending run may take to write its results. */
const LEAVE_MS = 2_000;

interface Pause {
  readonly ms: number;
  readonly untilMs: number;
}

interface Running {
  readonly owner: string;
  readonly run: BatchRun;
  readonly work: Promise<void>;
}

/** Runs the open batches of all keys while this master is the leader. */
export class BatchRunner implements OnApplicationBootstrap, OnModuleDestroy {
  readonly #store: BatchStore;
  readonly #files: FileStore;
  readonly #calls: BatchCalls;
  readonly #control: ControlPlane;
  readonly #maxBodyBytes: number;
  readonly #log: Logger;
  /** Keyed by `documentKey`, in the order of their creation. */
  #open: Map<string, DocumentRecord> | undefined;
  readonly #running = new Map<string, Running>();
  /** When failed ones may be tried again. */
  readonly #pauses = new Map<string, Pause>();
  #unsubscribe = () => {};
  #timer: NodeJS.Timeout | undefined;

  constructor(
    @Inject(BatchStore) store: BatchStore,
    @Inject(FileStore) files: FileStore,
    @Inject(BatchCalls) calls: BatchCalls,
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(MASTER_CONFIG) { maxBodyBytes }: Pick<MasterConfig, "maxBodyBytes">,
    @Inject(LOGGER) log: Logger,
  ) {
    this.#store = store;
    this.#files = files;
    this.#calls = calls;
    this.#control = control;
    this.#maxBodyBytes = maxBodyBytes;
    this.#log = log;
  }

  onApplicationBootstrap(): void {
    this.#unsubscribe = this.#control.onApplied((command) => this.#onApplied(command));
    this.#timer = setInterval(() => this.#poll(), POLL_MS);
    this.#timer.unref();
  }

  /** Leaves the running batches to another master, or to the next start. */
  async onModuleDestroy(): Promise<void> {
    clearInterval(this.#timer);
    this.#unsubscribe();
    const works = [...this.#running.values()].map(({ work }) => work);
    this.#leaveAll("this master is shutting down");
    await resolvesWithin(Promise.all(works), LEAVE_MS);
  }

  #onApplied(command: ControlCommand | undefined): void {
    if (command === undefined) this.#open = undefined;
    else if (command.type === "document.put" && command.document.kind === "batch") {
      const key = documentKey(command.document);
      this.#note(key);
      void this.#running
        .get(key)
        ?.run.checkCancelled()
        .catch(() => undefined);
    } else if (command.type === "document.delete" && command.kind === "batch") {
      this.#note(documentKey(command));
    }
  }

  #note(key: string): void {
    const record = this.#control.state.documents.get(key);
    if (record && isOpen(record)) this.#open?.set(key, record);
    else this.#open?.delete(key);
  }

  #poll(): void {
    if (!isActiveLeader(this.#control)) {
      this.#leaveAll("this master is no longer the leader");
      return;
    }
    this.#open ??= openBatches(this.#control);
    const nowMs = performance.now();
    for (const [key, record] of this.#open) {
      const isPaused = (this.#pauses.get(key)?.untilMs ?? 0) > nowMs;
      if (isPaused || this.#running.has(key)) continue;
      if (this.#hasRoom(record)) this.#start(key, record);
    }
  }

  /** A cancelled one only has to end. */
  #hasRoom({ owner, metadata }: DocumentRecord): boolean {
    if (metadata?.["state"] === CANCELLED) return true;
    return this.#running.size < MAX_RUNNING && this.#runningOf(owner) < MAX_RUNNING_OF_OWNER;
  }

  #runningOf(owner: string): number {
    return [...this.#running.values()].filter((running) => running.owner === owner).length;
  }

  #start(key: string, { owner, id, project: own }: DocumentRecord): void {
    const project = own ?? this.#control.state.keys.get(owner)?.project ?? DEFAULT_PROJECT;
    const parts = {
      store: this.#store,
      files: this.#files,
      calls: this.#calls,
      maxBodyBytes: this.#maxBodyBytes,
    };
    const run = new BatchRun(parts, { place: { owner, project }, id, run: randomUUID() });
    const work = run
      .work()
      .then(() => this.#pauses.delete(key))
      .catch((thrown: unknown) => {
        const ms = Math.min(MAX_RETRY_MS, 2 * (this.#pauses.get(key)?.ms ?? RETRY_MS / 2));
        this.#pauses.set(key, { ms, untilMs: performance.now() + ms });
        this.#log.warn({ batch: id, err: toAppError(thrown).message }, "a batch was left");
      })
      .then(() => {
        this.#running.delete(key);
        if (!this.#open?.has(key)) this.#pauses.delete(key);
      });
    this.#running.set(key, { owner, run, work });
  }

  #leaveAll(why: string): void {
    for (const { run } of this.#running.values()) run.leave(new AppError("unavailable", why));
  }
}

function isOpen({ kind, metadata }: DocumentRecord): boolean {
  return kind === "batch" && [OPEN, CANCELLED].includes(metadata?.["state"] ?? "");
}

function openBatches({ state }: ControlPlane): Map<string, DocumentRecord> {
  const found = [...state.documents.values()].filter(isOpen);
  found.sort((one, other) => one.createdVersion - other.createdVersion);
  return new Map(found.map((record) => [documentKey(record), record]));
}
