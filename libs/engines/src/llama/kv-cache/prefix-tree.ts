/** What the tree does to the KV cache; positions are token indices, ranges are half open. */
export interface KvSequences {
  /** Lets sequence `to` share the cells that sequence `from` has in [start, end). */
  copy(from: number, to: number, start: number, end: number): void;
  /** Takes the cells in [start, end) away from the sequence; unshared ones become free. */
  remove(sequence: number, start: number, end: number): void;
}

/** A claim on a cached prefix: its cells stay until the lease is released. */
export interface PrefixLease {
  /** Tokens of the prefix, all of them held by the tree. */
  readonly length: number;
  readonly node: PrefixNode;
  /** The owner of the prefix. */
  readonly group: string;
}

interface PrefixNode {
  /** The edge's tokens: those at positions [start, start + tokens.length). */
  tokens: Int32Array;
  start: number;
  /** The KV sequence whose only cells are this edge's. */
  sequence: number;
  parent: PrefixNode | undefined;
  /** Its key among the parent's children. */
  key: EdgeKey;
  readonly children: Map<EdgeKey, PrefixNode>;
  /** Leases that end in this edge; an edge with one is never evicted, nor are its ancestors. */
  leases: number;
  /** Counts up with every use; the smallest unleased leaf is evicted first. */
  lastUsed: number;
}

/** The first token of an edge; at the root with the group before it. */
type EdgeKey = number | string;

/**
 * A radix tree over token ids whose edges own KV cells. Prefixes are shared without copying any
 * data (the cells carry several sequence ids), survive their request, and are evicted least
 * recently used first. Idea: RadixAttention (Zheng et al., "SGLang", 2024).
 *
 * Invariants:
 * - The children of a node start with distinct tokens; those of the root, with distinct pairs of
 *   group and token, so that groups share nothing.
 * - Every edge has one sequence id of its own.
 * - `tokenCount` is the sum of the edges' lengths.
 */
export class PrefixTree {
  readonly #kv: KvSequences;
  readonly #freeSequences: number[];
  readonly #root: PrefixNode;
  #clock = 0;
  #tokenCount = 0;

  /** `sequences` are the KV sequence ids that the tree alone may use; one per edge. */
  constructor(kv: KvSequences, sequences: readonly number[]) {
    this.#kv = kv;
    this.#freeSequences = [...sequences];
    this.#root = newNode(new Int32Array(0), 0, -1, undefined, 0);
  }

  /** Tokens whose cells the tree holds. */
  get tokenCount(): number {
    return this.#tokenCount;
  }

  /** The length of the longest cached prefix of tokens[0, limit). */
  matchLength(tokens: Int32Array, limit: number, group = ""): number {
    return this.#find(tokens, limit, group).length;
  }

  /** Claims the longest cached prefix of tokens[0, limit) and shares its cells with `sequence`. */
  attach(tokens: Int32Array, limit: number, sequence: number, group = ""): PrefixLease {
    const { node, length } = this.#find(tokens, limit, group);
    this.#share(node, sequence, 0, length);
    node.leases++;
    return { length, node, group };
  }

  release(lease: PrefixLease): void {
    lease.node.leases--;
  }

  /**
   * Adds tokens[0, length), whose cells `sequence` holds, and moves the lease to them; prefixes
   * that the tree has are not held twice. The lease given back is shorter than `length` only where
   * every sequence id is in use and leased.
   */
  insert(tokens: Int32Array, length: number, sequence: number, lease: PrefixLease): PrefixLease {
    const { group } = lease;
    let { node, length: matched } = this.#find(tokens, length, group);
    if (matched > lease.length) this.#share(node, sequence, lease.length, matched, true);
    // The lease's own edge must survive the evictions below.
    node.leases++;
    lease.node.leases--;
    if (matched === length) return { length, node, group };
    if (this.#freeSequences.length < 2) this.#evictLeaves(2 - this.#freeSequences.length);
    const end = node.start + node.tokens.length;
    const splits = matched < end && node !== this.#root;
    if (this.#freeSequences.length < (splits ? 2 : 1)) return { length: matched, node, group };
    if (splits) {
      const upper = this.#split(node, matched);
      node.leases--;
      upper.leases++;
      node = upper;
    }
    const key = this.#keyOf(node, tokens[matched] as number, group);
    const leaf = this.#grow(node, tokens.slice(matched, length), sequence, { key, start: matched });
    node.leases--;
    leaf.leases++;
    return { length, node: leaf, group };
  }

  /** Frees at least `count` tokens, least recently used first; gives the number freed. */
  evict(count: number): number {
    let freed = 0;
    while (freed < count) {
      const leaf = this.#oldestLeaf();
      if (leaf === undefined) break;
      freed += leaf.tokens.length;
      this.#drop(leaf);
    }
    return freed;
  }

  /** Tokens that evictions could free now. */
  evictableTokens(): number {
    const visit = (node: PrefixNode): { tokens: number; leased: boolean } => {
      let tokens = 0;
      let leased = node.leases > 0;
      for (const child of node.children.values()) {
        const below = visit(child);
        tokens += below.tokens;
        leased ||= below.leased;
      }
      return { tokens: leased ? tokens : tokens + node.tokens.length, leased };
    };
    return visit(this.#root).tokens;
  }

  #keyOf(parent: PrefixNode, token: number, group: string): EdgeKey {
    return parent === this.#root ? `${group} ${token}` : token;
  }

  #find(tokens: Int32Array, limit: number, group: string): { node: PrefixNode; length: number } {
    let node = this.#root;
    let length = 0;
    for (;;) {
      node.lastUsed = ++this.#clock;
      if (length >= limit) return { node, length };
      const child = node.children.get(this.#keyOf(node, tokens[length] as number, group));
      if (child === undefined) return { node, length };
      const shared = commonLength(child.tokens, tokens, length, limit);
      length += shared;
      node = child;
      if (shared < child.tokens.length) {
        node.lastUsed = ++this.#clock;
        return { node, length };
      }
    }
  }

  /** Gives `sequence` the cells of the path to `node` in [from, to); `replace` drops its own there. */
  #share(node: PrefixNode, sequence: number, from: number, to: number, replace = false): void {
    if (replace) this.#kv.remove(sequence, from, to);
    for (let edge: PrefixNode | undefined = node; edge !== undefined; edge = edge.parent) {
      const start = Math.max(edge.start, from);
      const end = Math.min(edge.start + edge.tokens.length, to);
      if (start < end) this.#kv.copy(edge.sequence, sequence, start, end);
    }
  }

  /** Cuts an edge at a position; the object stays the lower part, so leases on it stay true. */
  #split(node: PrefixNode, position: number): PrefixNode {
    const cut = position - node.start;
    const parent = node.parent as PrefixNode;
    const sequence = this.#freeSequences.pop() as number;
    const upper = newNode(node.tokens.slice(0, cut), node.start, sequence, parent, node.key);
    upper.lastUsed = node.lastUsed;
    this.#kv.copy(node.sequence, sequence, node.start, position);
    this.#kv.remove(node.sequence, node.start, position);
    parent.children.set(upper.key, upper);
    node.tokens = node.tokens.slice(cut);
    node.start = position;
    node.parent = upper;
    node.key = node.tokens[0] as number;
    upper.children.set(node.key, node);
    return upper;
  }

  #grow(
    parent: PrefixNode,
    tokens: Int32Array,
    from: number,
    { key, start }: { readonly key: EdgeKey; readonly start: number },
  ): PrefixNode {
    const sequence = this.#freeSequences.pop() as number;
    this.#kv.copy(from, sequence, start, start + tokens.length);
    const leaf = newNode(tokens, start, sequence, parent, key);
    leaf.lastUsed = ++this.#clock;
    parent.children.set(key, leaf);
    this.#tokenCount += tokens.length;
    return leaf;
  }

  #evictLeaves(count: number): void {
    for (let i = 0; i < count; i++) {
      const leaf = this.#oldestLeaf();
      if (leaf === undefined) return;
      this.#drop(leaf);
    }
  }

  #oldestLeaf(): PrefixNode | undefined {
    let oldest: PrefixNode | undefined;
    const visit = (node: PrefixNode): void => {
      if (node.children.size === 0 && node.leases === 0 && node !== this.#root) {
        if (oldest === undefined || node.lastUsed < oldest.lastUsed) oldest = node;
      }
      for (const child of node.children.values()) visit(child);
    };
    visit(this.#root);
    return oldest;
  }

  #drop(leaf: PrefixNode): void {
    this.#kv.remove(leaf.sequence, leaf.start, leaf.start + leaf.tokens.length);
    this.#freeSequences.push(leaf.sequence);
    this.#tokenCount -= leaf.tokens.length;
    leaf.parent?.children.delete(leaf.key);
  }
}

function newNode(
  tokens: Int32Array,
  start: number,
  sequence: number,
  parent: PrefixNode | undefined,
  key: EdgeKey,
): PrefixNode {
  return { tokens, start, sequence, parent, key, children: new Map(), leases: 0, lastUsed: 0 };
}

function commonLength(edge: Int32Array, tokens: Int32Array, from: number, limit: number): number {
  const most = Math.min(edge.length, limit - from);
  let length = 0;
  while (length < most && edge[length] === tokens[from + length]) length++;
  return length;
}
