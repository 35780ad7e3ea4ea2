import type { ProjectStorage } from "../project-storage.ts";
import { type DocumentKind, type DocumentRecord, documentKey } from "./records.ts";

/** The documents and bytes of an owner, or of all. */
export interface DocumentUse {
  readonly count: number;
  readonly bytes: number;
}

type ProjectOf = (document: Pick<DocumentRecord, "owner" | "project">) => string;

const NONE: DocumentUse = { count: 0, bytes: 0 };

/** What follows from the state's documents. */
export class DocumentIndex {
  readonly #owners = new Map<string, DocumentUse>();
  readonly #lists = new Map<string, Ordered<DocumentRecord>>();
  readonly #dues = new Ordered<DocumentRecord>(byExpiry);
  /** Keyed by digest: how often documents name that content. */
  readonly digests = new Map<string, number>();
  total: DocumentUse = NONE;
  readonly storage: ProjectStorage;
  readonly #projectOf: ProjectOf;

  /** `projectOf` gives the same answer as long as the document exists. */
  constructor(documents: Iterable<DocumentRecord>, storage: ProjectStorage, projectOf: ProjectOf) {
    this.storage = storage;
    this.#projectOf = projectOf;
    storage.clear("documents");
    for (const document of documents) this.put(undefined, document);
  }

  useOf(owner: string): DocumentUse {
    return this.#owners.get(owner) ?? NONE;
  }

  /** Replaces a record by another; undefined for one that is new, or that goes. */
  put(before: DocumentRecord | undefined, after: DocumentRecord | undefined): void {
    if (before) this.#count(before, -1);
    if (after) this.#count(after, 1);
  }

  /** An owner's documents of a kind, oldest first, after or before the given one. */
  list(owner: string, kind: DocumentKind): Ordered<DocumentRecord> {
    return this.#lists.get(listKey(owner, kind)) ?? new Ordered(byAge);
  }

  /** The document that expires first. */
  get firstDue(): DocumentRecord | undefined {
    return this.#dues.at(0);
  }

  #count(document: DocumentRecord, sign: 1 | -1): void {
    const { owner, kind, digest, parts = [], bytes } = document;
    const added = (use: DocumentUse) => ({
      count: use.count + sign,
      bytes: use.bytes + sign * bytes,
    });
    this.total = added(this.total);
    this.storage.add(this.#projectOf(document), "documents", sign * bytes);
    setOrDrop(this.#owners, owner, added(this.useOf(owner)), ({ count }) => count === 0);
    for (const each of [digest, ...parts]) {
      setOrDrop(this.digests, each, (this.digests.get(each) ?? 0) + sign, (refs) => refs === 0);
    }
    const list = this.list(owner, kind);
    for (const order of document.expiresAtMs === undefined ? [list] : [list, this.#dues]) {
      if (sign === 1) order.add(document);
      else order.remove(document);
    }
    setOrDrop(this.#lists, listKey(owner, kind), list, ({ length }) => length === 0);
  }
}

/** Records in an order, searchable by binary search. */
class Ordered<Item> {
  readonly #items: Item[] = [];
  readonly #compare: (a: Item, b: Item) => number;

  constructor(compare: (a: Item, b: Item) => number) {
    this.#compare = compare;
  }

  get length(): number {
    return this.#items.length;
  }

  at(place: number): Item | undefined {
    return this.#items[place];
  }

  add(item: Item): void {
    this.#items.splice(this.placeOf(item), 0, item);
  }

  remove(item: Item): void {
    this.#items.splice(this.placeOf(item), 1);
  }

  /** The place of the first item that does not precede this one. */
  placeOf(item: Item): number {
    const last = this.#items.at(-1);
    if (last === undefined || this.#compare(last, item) < 0) return this.#items.length;
    let low = 0;
    let high = this.#items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#compare(this.#items[middle]!, item) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function byAge(a: DocumentRecord, b: DocumentRecord): number {
  return a.createdVersion - b.createdVersion;
}

function byExpiry(a: DocumentRecord, b: DocumentRecord): number {
  return a.expiresAtMs! - b.expiresAtMs! || byAge(a, b);
}

function listKey(owner: string, kind: DocumentKind): string {
  return documentKey({ owner, kind, id: "" });
}

function setOrDrop<V>(
  map: Map<string, V>,
  key: string,
  value: V,
  isEmpty: (value: V) => boolean,
): void {
  if (isEmpty(value)) map.delete(key);
  else map.set(key, value);
}
