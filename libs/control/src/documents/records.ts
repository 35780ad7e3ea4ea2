/** The kinds of documents, each with its own lists. */
const DOCUMENT_KINDS = ["response", "conversation", "file", "batch", "completion"] as const;

export type DocumentKind = (typeof DOCUMENT_KINDS)[number];

/** What names a document: an id is its owner's own within a kind. */
export interface DocumentName {
  readonly kind: DocumentKind;
  readonly id: string;
  /** The tenant; no caller of another one sees the document. */
  readonly owner: string;
}

/** A document as a caller stores it, beside its content. */
export interface NewDocument extends DocumentName {
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  /** The subject whose storage quota it counts for, as long as it exists; absent in older logs: its key's. */
  readonly project?: string | undefined;
  /** Absent for one that stays until it is deleted. */
  readonly expiresAtMs?: number | undefined;
}

/** The record of a document. Its contents are on the masters' disks, under their digests. */
export interface DocumentRecord extends NewDocument {
  /** SHA-256 of the content, hexadecimal. */
  readonly digest: string;
  /** The digests of further contents that belong to it; absent for none. */
  readonly parts?: readonly string[] | undefined;
  /** The bytes of the content and all parts. */
  readonly bytes: number;
  readonly createdAtMs: number;
  /** The version of its first put, which orders lists. */
  readonly createdVersion: number;
  /** The log index of its last put, for compare-and-set. */
  readonly version: number;
}

/** Changes of documents. */
export type DocumentsCommand =
  | {
      readonly type: "document.put";
      readonly atMs: number;
      readonly document: NewDocument & Pick<DocumentRecord, "digest" | "parts" | "bytes">;
      /** Compare-and-set: the document must have this version; 0 for one that does not exist. */
      readonly ifVersion?: number | undefined;
    }
  | ({ readonly type: "document.delete"; readonly atMs: number } & DocumentName)
  /** Removes documents whose time has passed, up to a bound. */
  | { readonly type: "documents.expire"; readonly atMs: number };

/** The largest content, and the largest part. */
export const MAX_DOCUMENT_BYTES = 64 * 2 ** 20;
export const MAX_DOCUMENT_PARTS = 256;
const MAX_METADATA_CHARACTERS = 1_024;

/** The key of a document in the state. */
export function documentKey({ owner, kind, id }: DocumentName): string {
  return `${owner}/${kind}/${id}`;
}

/** Why a document cannot be stored as it is; undefined if it can. */
export function documentFault({
  kind,
  id,
  owner,
  metadata = {},
  expiresAtMs = 0,
}: NewDocument): string | undefined {
  if (!DOCUMENT_KINDS.includes(kind)) return `a document is a ${DOCUMENT_KINDS.join(" or ")}`;
  if (!isName(id)) return "a document's id has 1 to 128 letters, digits, `_` or `-`";
  if (!isName(owner)) return "a document's owner has 1 to 128 letters, digits, `_` or `-`";
  if (!(Number.isSafeInteger(expiresAtMs) && expiresAtMs >= 0)) {
    return "the time at which a document expires is a number of milliseconds";
  }
  const isText = Object.values(metadata).every((value) => typeof value === "string");
  if (isText && JSON.stringify(metadata).length <= MAX_METADATA_CHARACTERS) return undefined;
  return `a document's metadata are texts, as JSON at most ${MAX_METADATA_CHARACTERS} characters`;
}

function isName(text: string): boolean {
  return /^[A-Za-z0-9_-]{1,128}$/.test(text);
}
