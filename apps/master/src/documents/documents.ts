import type { DocumentKind, DocumentRecord, NewDocument } from "@heddle/control/documents/records";
import type { ApiKeyRecord } from "@heddle/control/state";

/**
 * The masters' store of documents, the same on every master. An owner sees its own documents in one
 * project: any other is as one that does not exist.
 */
export interface Documents {
  /**
   * Resolves when the content is on the disks of a majority and its record is committed. Throws
   * `insufficient_storage`, `insufficient_quota`, `precondition_failed` where `expectedVersion` (0 for none) is another,
   * and `unavailable` without a majority.
   */
  put(document: NewDocument, content: Uint8Array, options?: PutOptions): Promise<DocumentRecord>;
  /**
   * Stores a part of a document to come, on the disks of a majority. It is removed unless a `put`
   * names it within minutes.
   */
  putPart(content: Uint8Array): Promise<DocumentPart>;
  /** A part of a document, by its digest. */
  part(digest: string): Promise<Uint8Array>;
  /** With every change answered before the call; undefined where there is none. */
  get(kind: DocumentKind, id: string, place: DocumentPlace): Promise<StoredDocument | undefined>;
  /** Like `get`, without the content. */
  find(kind: DocumentKind, id: string, place: DocumentPlace): Promise<DocumentRecord | undefined>;
  /** An owner's documents of a kind, sorted by age. */
  list(kind: DocumentKind, place: DocumentPlace, range: DocumentRange): Promise<DocumentPage>;
  /** Removes a document. Resolves with false where there was none. */
  delete(kind: DocumentKind, id: string, place: DocumentPlace): Promise<boolean>;
  /** Where a caller stores and reads: its owner is the first of the keys that its key replaced by rotation. */
  placeOf(caller: DocumentCaller): DocumentPlace;
  /** Throws `insufficient_storage` or `insufficient_quota` where a new document of this many bytes would be refused now. */
  checkRoom(place: DocumentPlace, bytes: number): void;
}

/** The owner of the documents, and the project that has them and for whose quota they count. */
export interface DocumentPlace {
  readonly owner: string;
  readonly project: string;
}

/** Who calls, for one project. */
export interface DocumentCaller extends Pick<ApiKeyRecord, "id" | "rotatedFrom"> {
  readonly project: string;
}

export interface PutOptions {
  readonly expectedVersion?: number | undefined;
  /** Contents that belong to it and are stored already. */
  readonly parts?: readonly DocumentPart[] | undefined;
  /** When the first part was stored that no record names yet, by `performance.now()`. */
  readonly sinceMs?: number | undefined;
  /** It expires this long after it was stored, in place of `expiresAtMs`. */
  readonly lifetimeMs?: number | undefined;
}

export interface DocumentPart {
  /** SHA-256, hexadecimal. */
  readonly digest: string;
  readonly bytes: number;
}

export interface StoredDocument {
  readonly record: DocumentRecord;
  readonly content: Uint8Array;
}

export interface DocumentRange {
  /** The id of the document before the first one; the page is empty where it does not exist. */
  readonly after?: string | undefined;
  readonly limit: number;
  readonly order: "asc" | "desc";
  /** Selects the documents; all of them if absent. */
  readonly where?: ((record: DocumentRecord) => boolean) | undefined;
}

export interface DocumentPage {
  readonly records: readonly DocumentRecord[];
  readonly hasMore: boolean;
}

/** The port's injection token. */
export const DOCUMENTS = Symbol("Documents");
