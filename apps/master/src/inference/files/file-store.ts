import { AppError } from "@heddle/base/errors";
import type { ApiFile, FilePage, FilesQuery } from "@heddle/contracts/api/inference/files";
import type { DocumentRecord } from "@heddle/control/documents/records";
import { Inject } from "@nestjs/common";
import {
  DOCUMENTS,
  type DocumentPart,
  type DocumentPlace,
  type Documents,
} from "../../documents/documents.ts";
import type { Caller } from "../../http/identity/caller.ts";

/** A file as it is stored beside its parts. */
interface StoredFile {
  readonly parts: readonly DocumentPart[];
}

/** What a file is created of. */
export interface NewFile extends DocumentPlace {
  readonly id: string;
  readonly filename: string;
  readonly purpose: ApiFile["purpose"];
  readonly lifetimeMs?: number | undefined;
}

/** A file and what reads its bytes. */
export interface OpenFile {
  readonly file: ApiFile;
  /** The bytes from `offset` on, part by part. */
  read(offset: number, maxBytes: number): AsyncGenerator<Uint8Array, void>;
}

/** Files in the masters' store. A caller sees those of its key and its successors in its project. */
export class FileStore {
  readonly #documents: Documents;

  constructor(@Inject(DOCUMENTS) documents: Documents) {
    this.#documents = documents;
  }

  placeOf(caller: Caller): DocumentPlace {
    return this.#documents.placeOf(caller);
  }

  /** Throws `insufficient_storage` or `insufficient_quota` where this many bytes do not fit. */
  checkRoom(place: DocumentPlace, bytes: number): void {
    this.#documents.checkRoom(place, bytes);
  }

  /** Stores a part of a file to come: it stays if `create` names it within minutes. */
  putPart(content: Uint8Array): Promise<DocumentPart> {
    return this.#documents.putPart(content);
  }

  part({ digest }: DocumentPart): Promise<Uint8Array> {
    return this.#documents.part(digest);
  }

  /** Creates the file of stored parts; one of the same id is replaced. */
  async create(
    { id, owner, project, filename, purpose, lifetimeMs }: NewFile,
    parts: readonly DocumentPart[],
    sinceMs: number,
  ): Promise<ApiFile> {
    const bytes = parts.reduce((sum, part) => sum + part.bytes, 0);
    const stored: StoredFile = { parts };
    const record = await this.#documents.put(
      {
        kind: "file",
        id,
        owner,
        project,
        metadata: { filename, purpose, bytes: String(bytes) },
      },
      Buffer.from(JSON.stringify(stored)),
      { parts, sinceMs, lifetimeMs },
    );
    return viewOf(record);
  }

  async list(place: DocumentPlace, { purpose, ...range }: FilesQuery): Promise<FilePage> {
    const where = ({ metadata }: DocumentRecord) =>
      purpose === undefined || metadata?.["purpose"] === purpose;
    const { records, hasMore } = await this.#documents.list("file", place, { ...range, where });
    const data = records.map(viewOf);
    return {
      object: "list",
      data,
      first_id: data[0]?.id ?? null,
      last_id: data.at(-1)?.id ?? null,
      has_more: hasMore,
    };
  }

  /** Undefined where the owner has no such file. */
  async find(place: DocumentPlace, id: string): Promise<ApiFile | undefined> {
    const record = isId(id) ? await this.#documents.find("file", id, place) : undefined;
    return record && viewOf(record);
  }

  /** Throws `not_found` where the owner has no such file. */
  async get(place: DocumentPlace, id: string): Promise<ApiFile> {
    const file = await this.find(place, id);
    if (file) return file;
    throw notFound(id);
  }

  /** Throws `not_found` where the owner has no such file. */
  async open(place: DocumentPlace, id: string): Promise<OpenFile> {
    const found = isId(id) ? await this.#documents.get("file", id, place) : undefined;
    if (!found) throw notFound(id);
    const { parts } = JSON.parse(Buffer.from(found.content).toString()) as StoredFile;
    return {
      file: viewOf(found.record),
      read: (offset, maxBytes) => this.#read(parts, offset, maxBytes),
    };
  }

  /** Throws `not_found` where the owner has no such file. */
  async delete(place: DocumentPlace, id: string): Promise<void> {
    const isKnown = isId(id) && (await this.#documents.delete("file", id, place));
    if (!isKnown) throw notFound(id);
  }

  async *#read(
    parts: readonly DocumentPart[],
    offset: number,
    maxBytes: number,
  ): AsyncGenerator<Uint8Array, void> {
    const end = offset + maxBytes;
    let at = 0;
    for (const { digest, bytes } of parts) {
      const [from, to] = [Math.max(offset, at) - at, Math.min(end, at + bytes) - at];
      at += bytes;
      if (from >= to) continue;
      const content = await this.#documents.part(digest);
      yield content.subarray(from, to);
    }
  }
}

const MAX_ID_CHARS = 128;

function isId(id: string): boolean {
  return /^[A-Za-z0-9_-]{1,128}$/.test(id);
}

function notFound(id: string): AppError {
  return new AppError("not_found", `No file has the id '${id.slice(0, MAX_ID_CHARS)}'.`);
}

function viewOf({ id, createdAtMs, expiresAtMs, metadata = {} }: DocumentRecord): ApiFile {
  return {
    id,
    object: "file",
    bytes: Number(metadata["bytes"]),
    created_at: Math.floor(createdAtMs / 1000),
    expires_at: expiresAtMs === undefined ? null : Math.floor(expiresAtMs / 1000),
    filename: metadata["filename"] ?? "",
    purpose: metadata["purpose"] as ApiFile["purpose"],
    status: "processed",
  };
}
