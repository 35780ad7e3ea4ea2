import type { ApiFile, FilePage } from "@heddle/contracts/api/inference/files";
import { pathPart } from "../../path-part.ts";
import type { CallOptions, HttpTransport } from "../../transport.ts";

const TRANSFER_TIMEOUT_MS = 420_000;

/** A file to store. */
export interface FileSpec {
  readonly file: Blob;
  readonly filename: string;
  readonly purpose: Exclude<ApiFile["purpose"], "batch_output">;
  /** Deletes it this many seconds after its creation: 3,600 to 2,592,000. */
  readonly expiresAfterSeconds?: number | undefined;
}

/** A page of a list, the newest first unless the order says otherwise. */
export interface FilesRange {
  readonly limit?: number;
  readonly order?: "asc" | "desc";
  /** The file before the page. */
  readonly after?: string;
  readonly purpose?: ApiFile["purpose"];
}

/** Files that the masters keep: `heddle.files`. */
export class Files {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** Stores a file. A refused request is not repeated. */
  create(spec: FileSpec, { signal }: CallOptions = {}): Promise<ApiFile> {
    const { file, filename, purpose, expiresAfterSeconds: seconds } = spec;
    const form = new FormData();
    form.set("purpose", purpose);
    if (seconds !== undefined) {
      form.set("expires_after[anchor]", "created_at");
      form.set("expires_after[seconds]", String(seconds));
    }
    form.set("file", file, filename);
    const timeout = TRANSFER_TIMEOUT_MS;
    const path = "/files";
    return this.#transport.json({ method: "POST", path, form, signal, timeout, maxRetries: 0 });
  }

  /** A page of the key's files. */
  list(query: FilesRange = {}, { signal }: CallOptions = {}): Promise<FilePage> {
    return this.#transport.json({ method: "GET", path: "/files", query: { ...query }, signal });
  }

  /** A file without its content. */
  retrieve(id: string, { signal }: CallOptions = {}): Promise<ApiFile> {
    return this.#transport.json({ method: "GET", path: pathOf(id), signal });
  }

  /** The response with a file's content, whose body the caller reads. */
  content(id: string, { signal }: CallOptions = {}): Promise<Response> {
    return this.#transport.open({ method: "GET", path: `${pathOf(id)}/content`, signal });
  }

  /** Deletes a file. */
  delete(id: string, { signal }: CallOptions = {}): Promise<void> {
    return this.#transport.json({ method: "DELETE", path: pathOf(id), signal });
  }
}

function pathOf(id: string): string {
  return `/files/${pathPart(id)}`;
}
