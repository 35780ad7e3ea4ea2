/**
 * The tokens of a vocabulary as a trie in shared memory, in the order of a walk from the root. Node
 * i has the byte bytes[i], and its descendants are the nodes up to ends[i].
 */
export interface TokenTrie {
  readonly bytes: Uint8Array;
  readonly ends: Int32Array;
  /** The depth of each node: the byte of its tokens, from 0 on. */
  readonly depths: Uint16Array;
  /** The tokens of node i are tokens[firsts[i]] up to tokens[firsts[i + 1]]. */
  readonly firsts: Int32Array;
  readonly tokens: Int32Array;
}

/** Longer tokens are of no use in a constrained text. */
const MAX_TOKEN_BYTES = 256;

/** The trie of those tokens that `isText` has. */
export function buildTokenTrie(
  table: { readonly count: number; readonly spelling: (token: number) => Uint8Array },
  isText: (token: number) => boolean,
): TokenTrie {
  const { count, spelling } = table;
  const sorted: number[] = [];
  for (let token = 0; token < count; token++) {
    const { length } = spelling(token);
    if (length > 0 && length <= MAX_TOKEN_BYTES && isText(token)) sorted.push(token);
  }
  sorted.sort((a, b) => compare(spelling(a), spelling(b)) || a - b);
  return new TrieWriter(sorted, spelling).write();
}

/** The child with the byte, of the root for -1; -1 where there is none. */
export function childOf({ bytes, ends }: TokenTrie, node: number, byte: number): number {
  const end = node < 0 ? bytes.length : (ends[node] as number);
  for (let child = node + 1; child < end; child = ends[child] as number) {
    if (bytes[child] === byte) return child;
  }
  return -1;
}

/** Appends the nodes of sorted tokens one after another. */
class TrieWriter {
  readonly #sorted: readonly number[];
  readonly #spelling: (token: number) => Uint8Array;
  readonly #bytes: number[] = [];
  readonly #ends: number[] = [];
  readonly #depths: number[] = [];
  readonly #firsts: number[] = [];
  /** The nodes on the way to the latest token. */
  readonly #path: number[] = [];

  constructor(sorted: readonly number[], spelling: (token: number) => Uint8Array) {
    this.#sorted = sorted;
    this.#spelling = spelling;
  }

  write(): TokenTrie {
    let before: Uint8Array = new Uint8Array(0);
    this.#sorted.forEach((token, at) => {
      const bytes = this.#spelling(token);
      const common = commonLength(before, bytes);
      this.#close(common);
      for (let depth = common; depth < bytes.length; depth++)
        this.#open(bytes[depth] as number, at);
      before = bytes;
    });
    this.#close(0);
    return {
      bytes: shared(Uint8Array, this.#bytes),
      ends: shared(Int32Array, this.#ends),
      depths: shared(Uint16Array, this.#depths),
      firsts: shared(Int32Array, [...this.#firsts, this.#sorted.length]),
      tokens: shared(Int32Array, this.#sorted),
    };
  }

  #open(byte: number, at: number): void {
    this.#depths.push(this.#path.length);
    this.#path.push(this.#bytes.push(byte) - 1);
    this.#ends.push(0);
    this.#firsts.push(at);
  }

  #close(depth: number): void {
    while (this.#path.length > depth) this.#ends[this.#path.pop() as number] = this.#bytes.length;
  }
}

function shared<Numbers extends Uint8Array | Uint16Array | Int32Array>(
  type: { new (buffer: SharedArrayBuffer): Numbers; readonly BYTES_PER_ELEMENT: number },
  values: readonly number[],
): Numbers {
  const array = new type(new SharedArrayBuffer(values.length * type.BYTES_PER_ELEMENT));
  array.set(values);
  return array;
}

function compare(a: Uint8Array, b: Uint8Array): number {
  const common = commonLength(a, b);
  if (common < a.length && common < b.length) return (a[common] as number) - (b[common] as number);
  return a.length - b.length;
}

function commonLength(a: Uint8Array, b: Uint8Array): number {
  const most = Math.min(a.length, b.length);
  let length = 0;
  while (length < most && a[length] === b[length]) length++;
  return length;
}
