import { AppError } from "@heddle/base/errors";
import {
  type ApiBatch,
  type BatchesQuery,
  type BatchPage,
  batchOperations,
  windowMs,
} from "@heddle/contracts/api/inference/batches";
import { Controller, Inject, Param, Query, Req } from "@nestjs/common";
import type { DocumentPlace } from "../../documents/documents.ts";
import type { CallerRequest } from "../../http/access.ts";
import { type Caller, requestCaller } from "../../http/identity/caller.ts";
import { uniqueSuffix } from "../../http/request-id.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { FileStore } from "../files/file-store.ts";
import { BatchStore, hasBatchEnded, NO_PROGRESS } from "./batch-store.ts";

@Controller()
export class BatchesController {
  readonly #batches: BatchStore;
  readonly #files: FileStore;

  constructor(@Inject(BatchStore) batches: BatchStore, @Inject(FileStore) files: FileStore) {
    this.#batches = batches;
    this.#files = files;
  }

  @Serves(batchOperations.create)
  async create(@Req() request: CallerRequest): Promise<ApiBatch> {
    const asked = bodyOf(batchOperations.create, request);
    refuseUser(requestCaller(request));
    const place = this.#files.placeOf(requestCaller(request));
    await this.#checkInput(place, asked.input_file_id);
    const nowMs = Date.now();
    const batch: ApiBatch = {
      id: `batch_${uniqueSuffix()}`,
      object: "batch",
      endpoint: asked.endpoint,
      errors: null,
      input_file_id: asked.input_file_id,
      completion_window: asked.completion_window,
      status: "validating",
      output_file_id: null,
      error_file_id: null,
      created_at: Math.floor(nowMs / 1000),
      in_progress_at: null,
      expires_at: Math.floor((nowMs + windowMs(asked.completion_window)) / 1000),
      finalizing_at: null,
      completed_at: null,
      failed_at: null,
      expired_at: null,
      cancelling_at: null,
      cancelled_at: null,
      request_counts: { total: 0, completed: 0, failed: 0 },
      metadata: asked.metadata ?? null,
    };
    await this.#batches.create(place, {
      batch,
      key: request.caller?.id ?? "",
      project: place.project,
      outputExpiresAfterS: asked.output_expires_after?.seconds,
      run: undefined,
      progress: NO_PROGRESS,
    });
    return batch;
  }

  @Serves(batchOperations.list)
  list(@Req() request: CallerRequest, @Query() query: BatchesQuery): Promise<BatchPage> {
    return this.#batches.list(this.#files.placeOf(requestCaller(request)), query);
  }

  @Serves(batchOperations.retrieve)
  async retrieve(@Req() request: CallerRequest, @Param("id") id: string): Promise<ApiBatch> {
    return (await this.#batches.get(this.#files.placeOf(requestCaller(request)), id)).stored.batch;
  }

  @Serves(batchOperations.cancel)
  async cancel(@Req() request: CallerRequest, @Param("id") id: string): Promise<ApiBatch> {
    const place = this.#files.placeOf(requestCaller(request));
    const { batch } = await this.#batches.update(place, id, (stored) => {
      const { status, cancelling_at } = stored.batch;
      if (hasBatchEnded(stored.batch)) {
        throw new AppError("conflict", `The batch '${id}' has ended: it is ${status}.`);
      }
      if (cancelling_at !== null) return undefined;
      const at = Math.floor(Date.now() / 1000);
      return { ...stored, batch: { ...stored.batch, status: "cancelling", cancelling_at: at } };
    });
    return batch;
  }

  async #checkInput(place: DocumentPlace, id: string): Promise<void> {
    const param = "input_file_id";
    const file = await this.#files.find(place, id);
    if (!file) {
      const message = `Invalid value for '${param}': no file has the id '${id}'.`;
      throw new AppError("invalid_value", message, { param });
    }
    if (file.purpose === "batch") return;
    const message = `Invalid value for '${param}': the file ${id} has the purpose ${file.purpose}, and a batch needs one with \`batch\`.`;
    throw new AppError("invalid_value", message, { param });
  }
}

/** A batch runs for hours by its caller's permissions, and an access token ends before that. */
function refuseUser({ kind }: Caller): void {
  if (kind === "key") return;
  const message = "A batch needs an API key: an access token ends before the batch does.";
  throw new AppError("permission_denied", message);
}
