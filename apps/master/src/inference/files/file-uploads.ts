import type { IncomingMessage } from "node:http";
import { AppError } from "@heddle/base/errors";
import { type ApiFile, fileForm } from "@heddle/contracts/api/inference/files";
import { settingValue } from "@heddle/contracts/api/settings";
import { validate } from "@heddle/contracts/validation";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import type { DocumentPart, DocumentPlace } from "../../documents/documents.ts";
import type { CallerRequest } from "../../http/access.ts";
import { allowLongRequest } from "../../http/connections/broken-requests.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { uniqueSuffix } from "../../http/request-id.ts";
import { FileStore } from "./file-store.ts";
import { isForm, readUpload, tooLarge, type UploadedForm } from "./form-upload.ts";

/** Uploads of all callers at once: each holds up to two parts in memory. */
const MAX_UPLOADS = 16;
const PART_BYTES = 4 * 2 ** 20;
/** What a form has beside its file. */
const EXTRA_BYTES = 64 * 1024;
/** Shorter than the time after which parts without a record are removed. */
const UPLOAD_MS = 420_000;

/** POST /files: the file is stored part by part while it arrives. */
export class FileUploads {
  readonly #files: FileStore;
  readonly #control: ControlPlane;
  #running = 0;

  constructor(@Inject(FileStore) files: FileStore, @Inject(CONTROL_PLANE) control: ControlPlane) {
    this.#files = files;
    this.#control = control;
  }

  async receive(request: CallerRequest, reply: FastifyReply): Promise<ApiFile> {
    const { raw, headers } = request;
    if (!isForm(headers)) {
      const message = "Send the file as a form: `Content-Type: multipart/form-data`.";
      throw new AppError("unsupported_media_type", message);
    }
    const place = this.#files.placeOf(requestCaller(request));
    const maxBytes = settingValue(this.#control.state.settings, "file_mib") * 2 ** 20;
    this.#running++;
    try {
      this.#check(place, Number(headers["content-length"] ?? 0), maxBytes);
      return await this.#store(raw, place, maxBytes);
    } catch (thrown) {
      // What is left of the body would be read as the next request.
      if (!raw.complete) reply.header("connection", "close");
      throw thrown;
    } finally {
      this.#running--;
    }
  }

  #check(place: DocumentPlace, declaredBytes: number, maxBytes: number): void {
    if (this.#running > MAX_UPLOADS) {
      const message = `This master receives ${MAX_UPLOADS} files already. Try again shortly.`;
      throw new AppError("overloaded", message, { retryAfterMs: 1_000 });
    }
    if (declaredBytes > maxBytes + EXTRA_BYTES) throw tooLarge(maxBytes);
    this.#files.checkRoom(place, Math.max(0, declaredBytes - EXTRA_BYTES));
  }

  async #store(message: IncomingMessage, place: DocumentPlace, maxBytes: number): Promise<ApiFile> {
    const sinceMs = performance.now();
    const signal = AbortSignal.timeout(UPLOAD_MS);
    const parts = new PartWriter((content) => this.#files.putPart(content));
    const free = allowLongRequest(message);
    let form: UploadedForm;
    try {
      form = await readUpload(message, { maxBytes, signal, take: (chunk) => parts.add(chunk) });
    } catch (thrown) {
      if (!signal.aborted) throw thrown;
      const text = `The file did not arrive within ${UPLOAD_MS / 1000} s.`;
      throw new AppError("request_timeout", text);
    } finally {
      free();
    }
    const { purpose, filename, expires_after: expiry } = fieldsOf(form);
    const lifetimeMs = expiry && expiry.seconds * 1000;
    const file = { id: `file-${uniqueSuffix()}`, ...place, filename, purpose, lifetimeMs };
    return this.#files.create(file, await parts.end(), sinceMs);
  }
}

/** Divides bytes into parts of one size, each stored before the next is taken. */
class PartWriter {
  readonly #put: (content: Uint8Array) => Promise<DocumentPart>;
  readonly #parts: DocumentPart[] = [];
  #chunks: Uint8Array[] = [];
  #bytes = 0;

  constructor(put: (content: Uint8Array) => Promise<DocumentPart>) {
    this.#put = put;
  }

  async add(chunk: Uint8Array): Promise<void> {
    this.#chunks.push(chunk);
    this.#bytes += chunk.byteLength;
    if (this.#bytes < PART_BYTES) return;
    const bytes = Buffer.concat(this.#chunks);
    this.#chunks = [bytes.subarray(PART_BYTES)];
    this.#bytes -= PART_BYTES;
    this.#parts.push(await this.#put(bytes.subarray(0, PART_BYTES)));
  }

  async end(): Promise<readonly DocumentPart[]> {
    if (this.#bytes > 0) this.#parts.push(await this.#put(Buffer.concat(this.#chunks)));
    return this.#parts;
  }
}

/** The fields of the form; those in brackets are members of an object. */
function fieldsOf({ fields, filename }: UploadedForm) {
  const { purpose } = fields;
  const anchor = fields["expires_after[anchor]"];
  const seconds = fields["expires_after[seconds]"];
  const expiry =
    anchor === undefined && seconds === undefined
      ? {}
      : { expires_after: { anchor, seconds: Number(seconds) } };
  return validate(fileForm, { purpose, filename, ...expiry });
}
