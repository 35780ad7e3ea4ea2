import { AppError } from "@heddle/base/errors";
import { BOUNDS_STORAGE, STORES_DOCUMENTS, versionOf } from "@heddle/control/cluster-version";
import { isLive, roomRefusal } from "@heddle/control/documents/documents-state-machine";
import {
  type DocumentKind,
  type DocumentRecord,
  documentFault,
  documentKey,
  MAX_DOCUMENT_BYTES,
  type NewDocument,
} from "@heddle/control/documents/records";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import { propose, refusalError } from "../control-plane/propose.ts";
import type { ContentReplicas } from "./content-replicas.ts";
import { CONTENT_GRACE_MS } from "./document-upkeep.ts";
import type {
  DocumentCaller,
  DocumentPage,
  DocumentPart,
  DocumentPlace,
  DocumentRange,
  Documents,
  PutOptions,
  StoredDocument,
} from "./documents.ts";

/** Documents whose records are in the replicated state and whose contents are on the masters' disks. */
export class ReplicatedDocuments implements Documents {
  readonly #control: ControlPlane;
  readonly #contents: ContentReplicas;

  constructor(control: ControlPlane, contents: ContentReplicas) {
    this.#control = control;
    this.#contents = contents;
  }

  async put(
    { kind, id, owner, project, metadata, expiresAtMs }: NewDocument,
    content: Uint8Array,
    { expectedVersion, parts = [], sinceMs, lifetimeMs }: PutOptions = {},
  ): Promise<DocumentRecord> {
    const named = { kind, id, owner, metadata, expiresAtMs };
    // Masters of earlier builds store a project that a later put lacks as absent.
    const isKnown = project !== undefined && versionOf(this.#control.state) >= BOUNDS_STORAGE;
    const document = isKnown ? { ...named, project } : named;
    this.#checkSize(kind, content);
    const bytes = parts.reduce((sum, part) => sum + part.bytes, content.byteLength);
    await this.#check(document, bytes);
    const startedMs = performance.now();
    const digest = await this.#contents.put(content);
    if (performance.now() - (sinceMs ?? startedMs) > CONTENT_GRACE_MS / 2) throw late(kind);
    const listed = parts.length > 0 ? { parts: parts.map((part) => part.digest) } : {};
    const atMs = Date.now();
    const expiry = lifetimeMs === undefined ? {} : { expiresAtMs: atMs + lifetimeMs };
    const { document: record } = await propose(this.#control, {
      type: "document.put",
      atMs,
      document: { ...document, ...expiry, digest, ...listed, bytes },
      ifVersion: expectedVersion,
    });
    // Another master may have swept the content while this process was stopped.
    const isLate = performance.now() - startedMs > CONTENT_GRACE_MS / 2;
    if (isLate) await this.#contents.put(content);
    return record!;
  }

  async putPart(content: Uint8Array): Promise<DocumentPart> {
    this.#checkVersion();
    this.#checkSize("file", content);
    return { digest: await this.#contents.put(content), bytes: content.byteLength };
  }

  part(digest: string): Promise<Uint8Array> {
    return this.#contents.get(digest);
  }

  async get(
    kind: DocumentKind,
    id: string,
    place: DocumentPlace,
  ): Promise<StoredDocument | undefined> {
    const record = await this.find(kind, id, place);
    return record && { record, content: await this.#contents.get(record.digest) };
  }

  async find(
    kind: DocumentKind,
    id: string,
    { owner, project }: DocumentPlace,
  ): Promise<DocumentRecord | undefined> {
    await this.#control.group?.readBarrier();
    const record = this.#control.state.documents.get(documentKey({ kind, id, owner }));
    if (!record || !isLive(record, Date.now())) return undefined;
    return isIn(project, record) ? record : undefined;
  }

  async list(
    kind: DocumentKind,
    place: DocumentPlace,
    { after, limit, order, where = () => true }: DocumentRange,
  ): Promise<DocumentPage> {
    const last = after === undefined ? undefined : await this.find(kind, after, place);
    if (after === undefined) await this.#control.group?.readBarrier();
    else if (!last) {
      const message = `No ${kind} has the id ${after}, so no page follows it.`;
      throw new AppError("invalid_value", message, { param: "after" });
    }
    const list = this.#control.documents.list(place.owner, kind);
    const step = order === "asc" ? 1 : -1;
    const first = order === "asc" ? 0 : list.length - 1;
    const records: DocumentRecord[] = [];
    const nowMs = Date.now();
    for (let at = last ? list.placeOf(last) + step : first; records.length <= limit; at += step) {
      const record = list.at(at);
      if (!record) break;
      const isSeen = isLive(record, nowMs) && isIn(place.project, record);
      if (isSeen && where(record)) records.push(record);
    }
    return { records: records.slice(0, limit), hasMore: records.length > limit };
  }

  async delete(kind: DocumentKind, id: string, place: DocumentPlace): Promise<boolean> {
    this.#checkVersion();
    if (!(await this.find(kind, id, place))) return false;
    const { owner } = place;
    const command = { type: "document.delete", atMs: Date.now(), kind, id, owner } as const;
    const reply = await this.#control.propose(command);
    if (!reply.ok && reply.code !== "not_found") throw refusalError(reply);
    return reply.ok;
  }

  placeOf({ id, rotatedFrom, project }: DocumentCaller): DocumentPlace {
    let [owner, before] = [id, rotatedFrom];
    while (before !== undefined) {
      owner = before;
      before = this.#control.state.keys.get(owner)?.rotatedFrom;
    }
    return { owner, project };
  }

  checkRoom({ owner, project }: DocumentPlace, bytes: number): void {
    const { state, documents } = this.#control;
    const refusal = roomRefusal(state, documents, { owner, project, bytes });
    if (refusal) throw refusalError(refusal);
  }

  async #check(document: NewDocument, bytes: number): Promise<void> {
    this.#checkVersion();
    const fault = documentFault(document);
    if (fault !== undefined) throw new AppError("invalid_value", `${fault}.`);
    if (this.#roomFor(document, bytes) === undefined) return;
    // This master may not know yet what others have deleted or set.
    await this.#control.group?.readBarrier();
    const refusal = this.#roomFor(document, bytes);
    if (refusal) throw refusalError(refusal);
  }

  #roomFor(document: NewDocument, bytes: number) {
    const { state, documents } = this.#control;
    const replaced = state.documents.get(documentKey(document));
    const { owner } = document;
    const isThere = replaced !== undefined && isLive(replaced, Date.now());
    const { project } = isThere ? replaced : document;
    return roomRefusal(state, documents, { owner, project, bytes }, replaced);
  }

  #checkSize(kind: DocumentKind, { byteLength }: Uint8Array): void {
    if (byteLength <= MAX_DOCUMENT_BYTES) return;
    const message = `A ${kind} has at most ${MAX_DOCUMENT_BYTES} bytes, and this one has ${byteLength}.`;
    throw new AppError("request_too_large", message);
  }

  #checkVersion(): void {
    if (versionOf(this.#control.state) >= STORES_DOCUMENTS) return;
    const message =
      "The masters store no documents yet: that begins when all of them run this build.";
    throw new AppError("unavailable", message);
  }
}

/** Records of older logs name no project: their owner alone decides. */
function isIn(asked: string, { project = asked }: DocumentRecord): boolean {
  return project === asked;
}

/** Contents without a record are removed after a while, so a record must not come too late. */
function late(kind: DocumentKind): AppError {
  return new AppError("request_timeout", `Storing the ${kind} took too long: try again.`);
}
