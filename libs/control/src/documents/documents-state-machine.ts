import { settingValue } from "@heddle/contracts/api/settings";
import { BOUNDS_STORAGE, versionOf } from "../cluster-version.ts";
import { ACCEPTED, type ControlReply, type Refusal, refuse } from "../command.ts";
import { ProjectStorage, storageRefusal } from "../project-storage.ts";
import type { ControlState } from "../state.ts";
import { DocumentIndex, type DocumentUse } from "./document-index.ts";
import {
  type DocumentName,
  type DocumentRecord,
  type DocumentsCommand,
  documentFault,
  documentKey,
  MAX_DOCUMENT_BYTES,
  MAX_DOCUMENT_PARTS,
  type NewDocument,
} from "./records.ts";

type DocumentsState = Pick<
  ControlState,
  "documents" | "settings" | "keys" | "projects" | "cluster"
>;

/** The project of keys that name none. */
const DEFAULT_PROJECT = "default";
/** Documents that one `documents.expire` removes at most. */
const MAX_EXPIRED = 1_000;
const COMMANDS = { "document.put": true, "document.delete": true, "documents.expire": true };

/** The replicated records of documents and their index: the only code that changes either. */
export class DocumentsStateMachine {
  readonly #state: DocumentsState;
  #index: DocumentIndex;

  constructor(state: DocumentsState, storage = new ProjectStorage()) {
    this.#state = state;
    this.#index = this.#indexed(storage);
  }

  /** Read-only, and another object after a restore. */
  get index(): DocumentIndex {
    return this.#index;
  }

  /** Rebuilds the index after the whole state was replaced. */
  rebuild(): void {
    this.#index = this.#indexed(this.#index.storage);
  }

  #indexed(storage: ProjectStorage): DocumentIndex {
    const { documents, keys } = this.#state;
    return new DocumentIndex(documents.values(), storage, (each) => projectOf({ keys }, each));
  }

  /** Deterministic; a refused command changes nothing. `atMs` is the log's time. */
  apply(command: DocumentsCommand, now: { index: number; atMs: number }): ControlReply {
    switch (command.type) {
      case "document.put":
        return this.#put(command, now);
      case "document.delete":
        return this.#delete(command, now.atMs);
      case "documents.expire":
        return this.#expire(now.atMs);
    }
  }

  #put(
    { document, ifVersion }: DocumentsCommand & { type: "document.put" },
    { index: version, atMs }: { index: number; atMs: number },
  ): ControlReply {
    const { kind, id } = document;
    const fault = documentFault(document) ?? contentFault(document);
    if (fault !== undefined) return refuse("invalid_value", fault);
    const stored = this.#state.documents.get(documentKey(document));
    const known = stored && isLive(stored, atMs) ? stored : undefined;
    if (ifVersion !== undefined && ifVersion !== (known?.version ?? 0)) {
      const has = known ? `has the version ${known.version}` : "does not exist";
      const message = `the ${kind} ${id} ${has}, and version ${ifVersion} was expected; read it again`;
      return refuse("precondition_failed", message);
    }
    const named = this.#inProject(document, known);
    const refusal = roomRefusal(this.#state, this.#index, named, stored);
    if (refusal) return refusal;
    const { createdAtMs = atMs, createdVersion = version } = known ?? {};
    const record = { ...named, createdAtMs, createdVersion, version };
    this.#replace(stored, record);
    return { ok: true, version, document: record };
  }

  /** A document stays in the project in which it was made. */
  #inProject<Put extends NewDocument>(document: Put, known: DocumentRecord | undefined): Put {
    if (versionOf(this.#state) < BOUNDS_STORAGE || !known) return document;
    const { project: _, ...rest } = document;
    const { project } = known;
    return (project === undefined ? rest : { ...rest, project }) as Put;
  }

  #delete(name: DocumentName, atMs: number): ControlReply {
    const known = this.#state.documents.get(documentKey(name));
    if (!known || !isLive(known, atMs)) {
      return refuse("not_found", `no ${name.kind} has the id ${name.id}`);
    }
    this.#replace(known, undefined);
    return ACCEPTED;
  }

  #expire(atMs: number): ControlReply {
    for (let removed = 0; removed < MAX_EXPIRED; removed++) {
      const first = this.#index.firstDue;
      if (!first || isLive(first, atMs)) break;
      this.#replace(first, undefined);
    }
    return ACCEPTED;
  }

  #replace(before: DocumentRecord | undefined, after: DocumentRecord | undefined): void {
    if (after) this.#state.documents.set(documentKey(after), after);
    else if (before) this.#state.documents.delete(documentKey(before));
    this.#index.put(before, after);
  }
}

/** Whether the command changes documents. */
export function isDocumentsCommand(command: {
  readonly type: string;
}): command is DocumentsCommand {
  return Object.hasOwn(COMMANDS, command.type);
}

/** Whether a document has not expired. */
export function isLive({ expiresAtMs }: DocumentRecord, atMs: number): boolean {
  return expiresAtMs === undefined || expiresAtMs > atMs;
}

/** The project of a document; one of an older log has that of its owner's key. */
function projectOf(
  { keys }: Pick<DocumentsState, "keys">,
  { project, owner }: Pick<DocumentRecord, "project" | "owner">,
): string {
  return project ?? keys.get(owner)?.project ?? DEFAULT_PROJECT;
}

/** Why an owner's content of this many bytes does not fit, as a new document or in place of one. */
export function roomRefusal(
  state: Pick<DocumentsState, "settings" | "keys" | "projects" | "cluster">,
  index: DocumentIndex,
  document: Pick<DocumentRecord, "owner" | "bytes" | "project">,
  replaced?: DocumentRecord,
): Refusal | undefined {
  const { settings } = state;
  const { owner, bytes } = document;
  const more = { count: replaced ? 0 : 1, bytes: bytes - (replaced?.bytes ?? 0) };
  const value = (name: Parameters<typeof settingValue>[1]) => settingValue(settings, name);
  return (
    useRefusal("this key's documents", index.useOf(owner), more, {
      count: value("owner_documents"),
      mib: value("owner_documents_mib"),
      settings: ["owner_documents", "owner_documents_mib"],
    }) ??
    useRefusal("the cluster's documents", index.total, more, {
      count: value("documents"),
      mib: value("documents_mib"),
      settings: ["documents", "documents_mib"],
    }) ??
    projectRefusal(state, index, document, replaced)
  );
}

function projectRefusal(
  state: Pick<DocumentsState, "keys" | "projects" | "cluster">,
  { storage }: DocumentIndex,
  document: Pick<DocumentRecord, "owner" | "bytes" | "project">,
  replaced?: DocumentRecord,
): Refusal | undefined {
  const project = projectOf(state, document);
  const isThere = replaced !== undefined && projectOf(state, replaced) === project;
  const more = document.bytes - (isThere ? replaced.bytes : 0);
  if (more <= 0) return undefined;
  const quotas = { projects: state.projects, storage, version: versionOf(state) };
  return storageRefusal(quotas, project, more);
}

function useRefusal(
  what: string,
  used: DocumentUse,
  more: DocumentUse,
  most: { count: number; mib: number; settings: readonly [string, string] },
): Refusal | undefined {
  const [countSetting, mibSetting] = most.settings;
  const full = (has: string, setting: string) =>
    refuse(
      "insufficient_storage",
      `${what} are ${has}; delete some, wait until some expire, or raise the cluster setting ${setting}`,
    );
  if (more.count > 0 && used.count + more.count > most.count) {
    return full(`${used.count}, and the limit is ${most.count}`, countSetting);
  }
  if (more.bytes > 0 && used.bytes + more.bytes > most.mib * 2 ** 20) {
    const has = `${used.bytes} bytes, this needs ${more.bytes} more, and the limit is ${most.mib} MiB`;
    return full(has, mibSetting);
  }
  return undefined;
}

function contentFault({
  digest,
  parts = [],
  bytes,
}: Pick<DocumentRecord, "digest" | "parts" | "bytes">): string | undefined {
  if (![digest, ...parts].every((each) => /^[0-9a-f]{64}$/.test(each))) {
    return "a document's digest is 64 hexadecimal digits";
  }
  if (parts.length > MAX_DOCUMENT_PARTS) {
    return `a document has at most ${MAX_DOCUMENT_PARTS} parts, got ${parts.length}`;
  }
  const maxBytes = MAX_DOCUMENT_BYTES * (1 + parts.length);
  if (Number.isSafeInteger(bytes) && bytes >= 0 && bytes <= maxBytes) return undefined;
  return `a document has at most ${maxBytes} bytes, got ${bytes}`;
}
