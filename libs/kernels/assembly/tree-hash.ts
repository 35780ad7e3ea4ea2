// The hashes of RFC 6962 with SHA-256, in AssemblyScript with 128-bit SIMD: each of the four lanes of a
// vector hashes a message of its own. `npm run kernels` compiles this into
// src/generated/tree-hash-module.ts.

/** Messages of one call, and their bytes with padding. */
const MAX_MESSAGES = 1024;
const MAX_BYTES = 262144;
const HASH_BYTES = 32;
const BLOCK_BYTES = 64;
/** A node: a prefix and two hashes, padded to two blocks. */
const NODE_BYTES = 65;

const K = memory.data<u32>([
  0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
  0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
  0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
  0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
  0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
  0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
  0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
  0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
]);
const INITIAL = memory.data<u32>([
  0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
]);
/** Eight vectors: word `i` of lane `n` is at 16 i + 4 n. */
const STATE = memory.data(128, 16);
/** The last 16 words of the message schedule, as vectors. */
const SCHEDULE = memory.data(256, 16);
/** Per lane: the block that is next, the blocks that are left, and the number of its message. */
const NEXT = memory.data(16, 16);
const LEFT = memory.data(16, 16);
const MESSAGE = memory.data(16, 16);
/** Four nodes. */
const NODES = memory.data(512, 16);

/** Pairs of the position and the length of each message, which has room for its padding. */
export const TABLE = memory.data(MAX_MESSAGES * 8, 16);
export const MESSAGES = memory.data(MAX_BYTES, 16);
export const HASHES = memory.data(MAX_MESSAGES * HASH_BYTES, 16);

/** The hashes of the messages in the table, at `HASHES`. */
export function hashMessages(count: i32): void {
  let next = 0;
  let open = 0;
  for (let lane: usize = 0; lane < 4; lane++) {
    store<u32>(NEXT + lane * 4, <u32>MESSAGES);
    store<u32>(LEFT + lane * 4, 0);
    if (next < count) {
      begin(lane, next++);
      open++;
    }
  }
  while (open > 0) {
    compress();
    for (let lane: usize = 0; lane < 4; lane++) {
      const left = load<u32>(LEFT + lane * 4);
      if (left == 0) continue;
      store<u32>(LEFT + lane * 4, left - 1);
      store<u32>(NEXT + lane * 4, load<u32>(NEXT + lane * 4) + BLOCK_BYTES);
      if (left > 1) continue;
      writeHash(lane, HASHES + load<u32>(MESSAGE + lane * 4) * HASH_BYTES);
      if (next < count) begin(lane, next++);
      else {
        store<u32>(NEXT + lane * 4, <u32>MESSAGES);
        open--;
      }
    }
  }
}

/** The root over a power of two of hashes at `HASHES`, which it takes the place of. */
export function completeRoot(count: i32): void {
  for (let lane: usize = 0; lane < 4; lane++) {
    const node = NODES + lane * 2 * BLOCK_BYTES;
    store<u8>(node, 1);
    pad(node, NODE_BYTES);
  }
  for (let nodes = count >> 1; nodes > 0; nodes >>= 1) {
    for (let at = 0; at < nodes; at += 4) hashNodes(at, min(4, nodes - at));
  }
}

/** Up to four nodes of the hashes behind `at` pairs, to place `at`. */
function hashNodes(at: i32, count: i32): void {
  const source = HASHES + <usize>at * 2 * HASH_BYTES;
  const lanes = <usize>count;
  for (let lane: usize = 0; lane < 4; lane++) {
    const node = NODES + lane * 2 * BLOCK_BYTES;
    if (lane < lanes) memory.copy(node + 1, source + lane * 2 * HASH_BYTES, 2 * HASH_BYTES);
    initialize(lane);
    store<u32>(NEXT + lane * 4, <u32>node);
  }
  compress();
  v128.store(NEXT, i32x4.add(v128.load(NEXT), i32x4.splat(BLOCK_BYTES)));
  compress();
  for (let lane: usize = 0; lane < lanes; lane++) {
    writeHash(lane, HASHES + (<usize>at + lane) * HASH_BYTES);
  }
}

function begin(lane: usize, message: i32): void {
  const at = load<u32>(TABLE + <usize>message * 8);
  const length = load<u32>(TABLE + <usize>message * 8, 4);
  store<u32>(MESSAGE + lane * 4, message);
  store<u32>(NEXT + lane * 4, at);
  store<u32>(LEFT + lane * 4, pad(at, length));
  initialize(lane);
}

/** Ends the message as SHA-256 wants it; gives its blocks. */
function pad(at: usize, length: u32): u32 {
  const blocks = (length + 9 + BLOCK_BYTES - 1) / BLOCK_BYTES;
  const end = at + blocks * BLOCK_BYTES;
  store<u8>(at + length, 0x80);
  memory.fill(at + length + 1, 0, end - (at + length + 1));
  store<u32>(end - 4, bswap<u32>(length * 8));
  return blocks;
}

function initialize(lane: usize): void {
  for (let word: usize = 0; word < 8; word++) {
    store<u32>(STATE + word * 16 + lane * 4, load<u32>(INITIAL + word * 4));
  }
}

function writeHash(lane: usize, to: usize): void {
  for (let word: usize = 0; word < 8; word++) {
    store<u32>(to + word * 4, bswap<u32>(load<u32>(STATE + word * 16 + lane * 4)));
  }
}

@inline
function rotate(x: v128, by: i32): v128 {
  return v128.or(v128.shr<u32>(x, by), v128.shl<i32>(x, 32 - by));
}

/** Four words of each lane's block: vectors of one word each. */
function readWords(offset: usize, to: usize): void {
  const a = bigEndian(v128.load(load<u32>(NEXT) + offset));
  const b = bigEndian(v128.load(load<u32>(NEXT, 4) + offset));
  const c = bigEndian(v128.load(load<u32>(NEXT, 8) + offset));
  const d = bigEndian(v128.load(load<u32>(NEXT, 12) + offset));
  const ab = v128.shuffle<i32>(a, b, 0, 4, 1, 5);
  const cd = v128.shuffle<i32>(c, d, 0, 4, 1, 5);
  const ab2 = v128.shuffle<i32>(a, b, 2, 6, 3, 7);
  const cd2 = v128.shuffle<i32>(c, d, 2, 6, 3, 7);
  v128.store(to, v128.shuffle<i64>(ab, cd, 0, 2));
  v128.store(to, v128.shuffle<i64>(ab, cd, 1, 3), 16);
  v128.store(to, v128.shuffle<i64>(ab2, cd2, 0, 2), 32);
  v128.store(to, v128.shuffle<i64>(ab2, cd2, 1, 3), 48);
}

@inline
function bigEndian(x: v128): v128 {
  return v128.shuffle<i8>(x, x, 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12);
}

/** One block of each lane. */
function compress(): void {
  readWords(0, SCHEDULE);
  readWords(16, SCHEDULE + 64);
  readWords(32, SCHEDULE + 128);
  readWords(48, SCHEDULE + 192);
  let a = v128.load(STATE);
  let b = v128.load(STATE, 16);
  let c = v128.load(STATE, 32);
  let d = v128.load(STATE, 48);
  let e = v128.load(STATE, 64);
  let f = v128.load(STATE, 80);
  let g = v128.load(STATE, 96);
  let h = v128.load(STATE, 112);
  for (let round: usize = 0; round < 64; round++) {
    const place = SCHEDULE + ((round & 15) << 4);
    let w = v128.load(place);
    if (round >= 16) {
      const w1 = v128.load(SCHEDULE + (((round + 1) & 15) << 4));
      const w9 = v128.load(SCHEDULE + (((round + 9) & 15) << 4));
      const w14 = v128.load(SCHEDULE + (((round + 14) & 15) << 4));
      const s0 = v128.xor(v128.xor(rotate(w1, 7), rotate(w1, 18)), v128.shr<u32>(w1, 3));
      const s1 = v128.xor(v128.xor(rotate(w14, 17), rotate(w14, 19)), v128.shr<u32>(w14, 10));
      w = i32x4.add(i32x4.add(w, s0), i32x4.add(w9, s1));
      v128.store(place, w);
    }
    const k = v128.load_splat<u32>(K + (round << 2));
    const s1 = v128.xor(v128.xor(rotate(e, 6), rotate(e, 11)), rotate(e, 25));
    const ch = v128.xor(g, v128.and(e, v128.xor(f, g)));
    const t1 = i32x4.add(i32x4.add(i32x4.add(h, s1), ch), i32x4.add(k, w));
    const s0 = v128.xor(v128.xor(rotate(a, 2), rotate(a, 13)), rotate(a, 22));
    const maj = v128.xor(b, v128.and(v128.xor(a, b), v128.xor(b, c)));
    h = g;
    g = f;
    f = e;
    e = i32x4.add(d, t1);
    d = c;
    c = b;
    b = a;
    a = i32x4.add(t1, i32x4.add(s0, maj));
  }
  v128.store(STATE, i32x4.add(a, v128.load(STATE)));
  v128.store(STATE, i32x4.add(b, v128.load(STATE, 16)), 16);
  v128.store(STATE, i32x4.add(c, v128.load(STATE, 32)), 32);
  v128.store(STATE, i32x4.add(d, v128.load(STATE, 48)), 48);
  v128.store(STATE, i32x4.add(e, v128.load(STATE, 64)), 64);
  v128.store(STATE, i32x4.add(f, v128.load(STATE, 80)), 80);
  v128.store(STATE, i32x4.add(g, v128.load(STATE, 96)), 96);
  v128.store(STATE, i32x4.add(h, v128.load(STATE, 112)), 112);
}
