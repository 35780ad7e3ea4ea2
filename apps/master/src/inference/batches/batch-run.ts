import { retry } from "@heddle/base/async/retry";
import { AppError, type ErrorCode, toAppError } from "@heddle/base/errors";
import type { ApiBatch, BatchError } from "@heddle/contracts/api/inference/batches";
import type { DocumentPart, DocumentPlace } from "../../documents/documents.ts";
import type { InProcessReply } from "../../http/in-process-calls.ts";
import type { FileStore, OpenFile } from "../files/file-store.ts";
import type { BatchCalls } from "./batch-calls.ts";
import { BatchResults, type LineResult, type ResultPiece } from "./batch-results.ts";
import { type BatchStore, hasBatchEnded, NO_PROGRESS, type StoredBatch } from "./batch-store.ts";
import { batchLine, checkedLines, type InputLine, linesOf, pathOf } from "./input-lines.ts";

/** Lines of one batch at once. */
const LINES_AT_ONCE = 32;
const WRITE_MS = 2_000;
/** Results of up to this many bytes become one content. */
const PART_BYTES = 16 * 2 ** 20;
/** Failures of the store that pass. */
const PASSING: readonly ErrorCode[] = ["unavailable", "outcome_unknown", "overloaded"];
const STORE_BACKOFF = { baseMs: 250, maxMs: 5_000 };
/** Between tries to store results where there is no room. */
const ROOM_BACKOFF = { baseMs: 1_000, maxMs: 15_000 };

/** What a run works with. */
export interface BatchRunParts {
  readonly store: BatchStore;
  readonly files: FileStore;
  readonly calls: BatchCalls;
  readonly maxBodyBytes: number;
}

/** Which batch, and the run that works on it. */
export interface BatchRunName {
  readonly place: DocumentPlace;
  readonly id: string;
  readonly run: string;
}

/** How a batch ends. */
type Ending = "completed" | "expired" | "cancelled";

/**
 * One master's work on a batch. Results and the lines that they are of are written together, so a
 * later run repeats the lines without results and no others.
 */
export class BatchRun {
  readonly #parts: BatchRunParts;
  readonly #name: BatchRunName;
  /** Ends the run and leaves the batch to another one. */
  readonly #left = new AbortController();
  /** Ends its lines; the batch is finished with what it has. */
  readonly #stopped = new AbortController();
  #ending: Ending = "completed";
  #stored!: StoredBatch;

  constructor(parts: BatchRunParts, name: BatchRunName) {
    this.#parts = parts;
    this.#name = name;
  }

  /** Ends the run without an end of the batch. */
  leave(reason: AppError): void {
    this.#left.abort(reason);
    this.#stopped.abort(reason);
  }

  /** Reads whether a caller has cancelled the batch. */
  async checkCancelled(): Promise<void> {
    const { place, id, run } = this.#name;
    const { stored } = await this.#parts.store.get(place, id);
    if (stored.run !== run) this.leave(taken());
    else if (stored.batch.status === "cancelling") this.#stop("cancelled");
  }

  /** Resolves when the batch has ended; rejects when another run has taken it, or after `leave`. */
  async work(): Promise<void> {
    const { place, id, run } = this.#name;
    this.#stored = await this.#persisted(() =>
      this.#parts.store.update(place, id, (stored) =>
        hasBatchEnded(stored.batch) ? undefined : { ...stored, run },
      ),
    );
    if (hasBatchEnded(this.#stored.batch)) return;
    if (this.#stored.batch.cancelling_at !== null) this.#stop("cancelled");
    const leftMs = this.#stored.batch.expires_at * 1000 - Date.now();
    const expiry = timer(() => this.#stop("expired"), leftMs);
    try {
      const input = await this.#opened();
      if (this.#stored.batch.status === "validating") await this.#validate(input);
      if (this.#stored.batch.status !== "finalizing") await this.#runLines(input);
      await this.#finish();
    } catch (thrown) {
      this.#left.signal.throwIfAborted();
      const { code, message, param = null } = toAppError(thrown);
      await this.#fail([{ code, message, param, line: null }]);
    } finally {
      expiry.clear();
    }
  }

  #stop(ending: Ending): void {
    if (this.#stopped.signal.aborted) return;
    this.#ending = ending;
    this.#stopped.abort();
  }

  async #opened(): Promise<OpenFile> {
    const { input_file_id: file } = this.#stored.batch;
    try {
      return await this.#persisted(() => this.#parts.files.open(this.#name.place, file));
    } catch (thrown) {
      if (toAppError(thrown).code !== "not_found") throw thrown;
      const message = `The input file ${file} was deleted.`;
      throw new AppError("not_found", message, { param: "input_file_id" });
    }
  }

  async #validate(input: OpenFile): Promise<void> {
    const { endpoint } = this.#stored.batch;
    const { total, faults } = await checkedLines(input, endpoint, this.#parts.maxBodyBytes);
    if (faults.length > 0) return this.#fail(faults);
    await this.#change(({ status, ...batch }) => ({
      ...batch,
      status: status === "validating" ? "in_progress" : status,
      in_progress_at: seconds(),
      request_counts: { ...batch.request_counts, total },
    }));
  }

  async #runLines(input: OpenFile): Promise<void> {
    if (hasBatchEnded(this.#stored.batch)) return;
    const results = new BatchResults(this.#stored.progress);
    const wake = () => results.wake();
    this.#stopped.signal.addEventListener("abort", wake, { once: true });
    const writing = this.#writeResults(results).catch((fault: unknown) => {
      results.fault = toAppError(fault);
      this.#stopped.abort();
    });
    try {
      await this.#startLines(input, results);
      if (this.#ending === "expired") await this.#expireLines(input, results);
    } finally {
      results.close();
      await writing;
      this.#stopped.signal.removeEventListener("abort", wake);
    }
    if (results.fault) throw results.fault;
    this.#left.signal.throwIfAborted();
  }

  async #startLines(input: OpenFile, results: BatchResults): Promise<void> {
    const { signal } = this.#stopped;
    const running = new Set<Promise<void>>();
    for await (const line of linesOf(input, this.#parts.maxBodyBytes)) {
      if (results.has(line.index)) continue;
      while (!signal.aborted && (running.size >= LINES_AT_ONCE || !results.mayStart(line.index))) {
        await results.changed;
      }
      if (signal.aborted) break;
      const work = this.#runLine(line, results).finally(() => {
        running.delete(work);
        results.wake();
      });
      running.add(work);
    }
    await Promise.all(running);
  }

  async #runLine(line: InputLine, results: BatchResults): Promise<void> {
    const { batch, key, project } = this.#stored;
    const asked = batchLine(line, batch.endpoint);
    const path = pathOf(batch.endpoint);
    const { signal } = this.#stopped;
    try {
      const reply = await this.#parts.calls.call({ path, line: asked, key, project }, signal);
      results.add(resultOf(batch.id, line, asked.customId, reply));
    } catch (thrown) {
      if (signal.aborted) return;
      const { code, message } = toAppError(thrown);
      results.add(failedLine(batch.id, line, asked.customId, { code, message }));
    }
  }

  /** Lines that did not run in time have an error each. */
  async #expireLines(input: OpenFile, results: BatchResults): Promise<void> {
    const { batch } = this.#stored;
    const written = new Set(results.take().indices);
    for await (const line of linesOf(input, this.#parts.maxBodyBytes)) {
      if (results.has(line.index) || written.has(line.index)) continue;
      while (!results.fault && !results.mayStart(line.index)) await results.changed;
      if (results.fault) return;
      const { customId } = batchLine(line, batch.endpoint);
      const message = "The line did not run within the completion window.";
      results.add(failedLine(batch.id, line, customId, { code: "batch_expired", message }));
    }
  }

  /** Writes results from time to time until the last one. */
  async #writeResults(results: BatchResults): Promise<void> {
    for (;;) {
      const isLast = await results.due(WRITE_MS);
      this.#left.signal.throwIfAborted();
      if (!results.isEmpty) await this.#write(results);
      if (isLast) return;
    }
  }

  async #write(results: BatchResults): Promise<void> {
    const piece = results.take();
    const { request_counts: counts } = this.#stored.batch;
    const { progress } = this.#stored;
    await this.#withRoom(async () => {
      const sinceMs = performance.now();
      const after = {
        ...results.after(piece),
        output: await this.#appended(progress.output, piece.output),
        errors: await this.#appended(progress.errors, piece.errors),
      };
      await this.#update((stored) => {
        const request_counts = countsAfter(counts, piece);
        const batch = { ...stored.batch, request_counts, errors: null };
        return { ...stored, progress: after, batch };
      }, sinceMs);
    });
    results.written(piece);
  }

  /**
   * Results wait until there is room for them, and so do further lines: nothing of them is lost. The
   * batch says so. Once it has to end it waits no longer.
   */
  async #withRoom(write: () => Promise<void>): Promise<void> {
    await retry(() => this.#persisted(write), {
      backoff: ROOM_BACKOFF,
      signal: this.#left.signal,
      isPassing: (error) => isFull(error) && !this.#stopped.signal.aborted,
      onRetry: (error, tries) => {
        if (tries === 1) void this.#sayFull(toAppError(error)).catch(() => undefined);
      },
    });
  }

  /** The record has room for it, since it is no larger than the results that will be taken from it. */
  async #sayFull({ code, message }: AppError): Promise<void> {
    const text = `Results wait to be stored. ${message}`;
    const data = [{ code, message: text, param: null, line: null }];
    await this.#update((stored) => ({
      ...stored,
      batch: { ...stored.batch, errors: { object: "list", data } },
    }));
  }

  /** Small contents are joined with those before them, so that they stay few. */
  async #appended(parts: readonly DocumentPart[], added: Buffer): Promise<readonly DocumentPart[]> {
    if (added.byteLength === 0) return parts;
    const kept = [...parts];
    let content = added;
    for (let last = kept.at(-1); last; last = kept.at(-1)) {
      const { byteLength } = content;
      if (last.bytes > byteLength || last.bytes + byteLength > PART_BYTES) break;
      content = Buffer.concat([await this.#parts.files.part(last), content]);
      kept.pop();
    }
    return [...kept, await this.#parts.files.putPart(content)];
  }

  async #finish(): Promise<void> {
    if (hasBatchEnded(this.#stored.batch)) return;
    if (this.#ending === "completed" && this.#stored.batch.status !== "finalizing") {
      await this.#change((batch) =>
        batch.status === "cancelling"
          ? batch
          : { ...batch, status: "finalizing", finalizing_at: seconds() },
      );
    }
    const isCancelled = this.#stored.batch.cancelling_at !== null;
    await this.#end(isCancelled ? "cancelled" : this.#ending);
  }

  async #fail(faults: readonly BatchError[]): Promise<void> {
    await this.#end("failed", faults);
  }

  /** The results become files whose ids follow from the batch's, so a repeated end makes no more. */
  async #end(status: Ending | "failed", faults: readonly BatchError[] = []): Promise<void> {
    const errors = faults.length > 0 ? { object: "list" as const, data: [...faults] } : null;
    await this.#persisted(() =>
      this.#update((stored) => {
        const batch = { ...stored.batch, errors: errors ?? stored.batch.errors };
        return { ...stored, isEnding: true, batch };
      }),
    );
    const { output, errors: failures } = this.#stored.progress;
    const files = {
      output_file_id: await this.#file("output", output),
      error_file_id: await this.#file("errors", failures),
    };
    const ended = { ...files, status, [`${status}_at`]: seconds() };
    await this.#persisted(() =>
      this.#update((stored) => ({
        ...stored,
        progress: NO_PROGRESS,
        batch: { ...stored.batch, ...ended },
      })),
    );
  }

  async #file(kind: "output" | "errors", parts: readonly DocumentPart[]): Promise<string | null> {
    if (parts.length === 0) return null;
    const { id, place } = this.#name;
    const { outputExpiresAfterS: expiresAfterS } = this.#stored;
    const file = {
      id: `${id.replace(/^batch_/, "file-")}-${kind}`,
      ...place,
      filename: `${id}_${kind}.jsonl`,
      purpose: "batch_output" as const,
      lifetimeMs: expiresAfterS === undefined ? undefined : expiresAfterS * 1000,
    };
    await this.#persisted(() => this.#parts.files.create(file, parts, performance.now()));
    return file.id;
  }

  #change(change: (batch: ApiBatch) => ApiBatch): Promise<void> {
    return this.#persisted(() =>
      this.#update((stored) => ({ ...stored, batch: change(stored.batch) })),
    );
  }

  /** Changes the batch while it is this run's. */
  async #update(change: (stored: StoredBatch) => StoredBatch, sinceMs?: number): Promise<void> {
    const { place, id, run } = this.#name;
    const changed = (stored: StoredBatch) => {
      if (stored.run !== run) {
        this.leave(taken());
        throw taken();
      }
      return change(stored);
    };
    this.#stored = await this.#parts.store.update(place, id, changed, sinceMs);
    if (this.#stored.batch.status === "cancelling") this.#stop("cancelled");
  }

  /** Tries again while the masters have no majority; ends with `leave`. */
  #persisted<Result>(work: () => Promise<Result>): Promise<Result> {
    return retry(work, {
      backoff: STORE_BACKOFF,
      signal: this.#left.signal,
      isPassing: (error) => PASSING.includes(toAppError(error).code),
    });
  }
}

function isFull(error: unknown): boolean {
  const { code } = toAppError(error);
  return code === "insufficient_storage" || code === "insufficient_quota";
}

function countsAfter(
  { total, completed, failed }: ApiBatch["request_counts"],
  piece: ResultPiece,
): ApiBatch["request_counts"] {
  return { total, completed: completed + piece.completed, failed: failed + piece.failed };
}

function taken(): AppError {
  return new AppError("conflict", "Another master works on this batch.");
}

function resultOf(
  batch: string,
  { index }: InputLine,
  customId: string,
  { status, headers, body }: InProcessReply,
): LineResult {
  const requestId = JSON.stringify(headers["x-request-id"] ?? null);
  const response = `{"status_code":${status},"request_id":${requestId},"body":${body}}`;
  const head = `{"id":${JSON.stringify(lineId(batch, index))},"custom_id":${JSON.stringify(customId)}`;
  const text = `${head},"response":${response},"error":null}\n`;
  return { index, text, isSuccess: status < 400 };
}

function failedLine(
  batch: string,
  { index }: InputLine,
  customId: string,
  error: { readonly code: string; readonly message: string },
): LineResult {
  const line = { id: lineId(batch, index), custom_id: customId, response: null, error };
  return { index, text: `${JSON.stringify(line)}\n`, isSuccess: false };
}

function lineId(batch: string, index: number): string {
  return `${batch.replace(/^batch_/, "batch_req_")}_${index}`;
}

function seconds(): number {
  return Math.floor(Date.now() / 1000);
}

/** Node's timers wait for at most 24 days; a window has at most 7. */
function timer(work: () => void, ms: number): { clear(): void } {
  const timeout = setTimeout(work, Math.max(0, ms));
  timeout.unref();
  return { clear: () => clearTimeout(timeout) };
}
