// The parameter server's arithmetic, in AssemblyScript with 128-bit SIMD. Pointers are byte offsets
// into the memory, multiples of 16; counts are of float32 elements, multiples of 256 (slabs are
// padded with zeros to that). `npm run kernels` compiles this into src/kernels.generated.ts.

/**
 * acc += weight * part, or acc = 0 + weight * part for the `first` of a sum. Gives 1 where an element
 * of acc is then NaN or infinite, else 0: to look for them costs next to nothing here.
 */
export function addScaled(acc: usize, part: usize, count: i32, weight: f32, first: i32): i32 {
  const w = f32x4.splat(weight);
  const zero = f32x4.splat(0);
  const end = acc + ((<usize>count) << 2);
  // Four, so that none waits for the one before. x - x is 0 for numbers alone.
  let a = zero;
  let b = zero;
  let c = zero;
  let d = zero;
  if (first) {
    while (acc < end) {
      const a0 = f32x4.add(zero, f32x4.mul(w, v128.load(part)));
      const b0 = f32x4.add(zero, f32x4.mul(w, v128.load(part, 16)));
      const c0 = f32x4.add(zero, f32x4.mul(w, v128.load(part, 32)));
      const d0 = f32x4.add(zero, f32x4.mul(w, v128.load(part, 48)));
      v128.store(acc, a0);
      v128.store(acc, b0, 16);
      v128.store(acc, c0, 32);
      v128.store(acc, d0, 48);
      a = v128.or(a, f32x4.sub(a0, a0));
      b = v128.or(b, f32x4.sub(b0, b0));
      c = v128.or(c, f32x4.sub(c0, c0));
      d = v128.or(d, f32x4.sub(d0, d0));
      acc += 64;
      part += 64;
    }
  } else {
    while (acc < end) {
      const a0 = f32x4.add(v128.load(acc), f32x4.mul(w, v128.load(part)));
      const b0 = f32x4.add(v128.load(acc, 16), f32x4.mul(w, v128.load(part, 16)));
      const c0 = f32x4.add(v128.load(acc, 32), f32x4.mul(w, v128.load(part, 32)));
      const d0 = f32x4.add(v128.load(acc, 48), f32x4.mul(w, v128.load(part, 48)));
      v128.store(acc, a0);
      v128.store(acc, b0, 16);
      v128.store(acc, c0, 32);
      v128.store(acc, d0, 48);
      a = v128.or(a, f32x4.sub(a0, a0));
      b = v128.or(b, f32x4.sub(b0, b0));
      c = v128.or(c, f32x4.sub(c0, c0));
      d = v128.or(d, f32x4.sub(d0, d0));
      acc += 64;
      part += 64;
    }
  }
  return v128.any_true(v128.or(v128.or(a, b), v128.or(c, d))) ? 1 : 0;
}

/** acc += part */
export function add(acc: usize, part: usize, count: i32): void {
  const end = acc + ((<usize>count) << 2);
  while (acc < end) {
    v128.store(acc, f32x4.add(v128.load(acc), v128.load(part)));
    v128.store(acc, f32x4.add(v128.load(acc, 16), v128.load(part, 16)), 16);
    v128.store(acc, f32x4.add(v128.load(acc, 32), v128.load(part, 32)), 32);
    v128.store(acc, f32x4.add(v128.load(acc, 48), v128.load(part, 48)), 48);
    acc += 64;
    part += 64;
  }
}

/** acc += weight * part, whose elements are the upper halves of float32. */
export function addBf16(acc: usize, part: usize, count: i32, weight: f32): void {
  const w = f32x4.splat(weight);
  const end = acc + ((<usize>count) << 2);
  while (acc < end) {
    const halves = v128.load(part);
    const low = v128.shl<i32>(i32x4.extend_low_i16x8_u(halves), 16);
    const high = v128.shl<i32>(i32x4.extend_high_i16x8_u(halves), 16);
    v128.store(acc, f32x4.add(v128.load(acc), f32x4.mul(w, low)));
    v128.store(acc, f32x4.add(v128.load(acc, 16), f32x4.mul(w, high)), 16);
    acc += 32;
    part += 16;
  }
}

/** acc += weight * scale * part, with one scale for each 256 integers of 8 bits. */
export function addInt8(acc: usize, part: usize, scales: usize, count: i32, weight: f32): void {
  const end = acc + ((<usize>count) << 2);
  while (acc < end) {
    const scale = f32x4.splat(weight * f32.load(scales));
    for (let at: usize = 0; at < 256; at += 16) {
      const bytes = v128.load(part + at);
      const low = i16x8.extend_low_i8x16_s(bytes);
      const high = i16x8.extend_high_i8x16_s(bytes);
      const to = acc + (at << 2);
      const a = f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(low));
      const b = f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(low));
      const c = f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(high));
      const d = f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(high));
      v128.store(to, f32x4.add(v128.load(to), f32x4.mul(scale, a)));
      v128.store(to, f32x4.add(v128.load(to, 16), f32x4.mul(scale, b)), 16);
      v128.store(to, f32x4.add(v128.load(to, 32), f32x4.mul(scale, c)), 32);
      v128.store(to, f32x4.add(v128.load(to, 48), f32x4.mul(scale, d)), 48);
    }
    acc += 1024;
    part += 256;
    scales += 4;
  }
}

/** Rounds to the upper halves of float32, ties to even. NaN must have been checked for before. */
export function toBf16(out: usize, values: usize, count: i32): void {
  const end = values + ((<usize>count) << 2);
  while (values < end) {
    v128.store(out, i16x8.narrow_i32x4_u(halved(v128.load(values)), halved(v128.load(values, 16))));
    values += 32;
    out += 16;
  }
}

@inline
function halved(word: v128): v128 {
  const odd = v128.and(v128.shr<u32>(word, 16), i32x4.splat(1));
  return v128.shr<u32>(i32x4.add(i32x4.add(word, i32x4.splat(0x7fff)), odd), 16);
}

/** Rounds to integers of 8 bits, with the scale of each block of 256 so that its greatest is 127. */
export function toInt8(out: usize, scales: usize, values: usize, count: i32): void {
  const end = values + ((<usize>count) << 2);
  while (values < end) {
    let peaks = f32x4.splat(0);
    for (let at: usize = 0; at < 1024; at += 16) {
      peaks = f32x4.pmax(peaks, f32x4.abs(v128.load(values + at)));
    }
    const left = max(f32x4.extract_lane(peaks, 0), f32x4.extract_lane(peaks, 1));
    const scale = max(left, max(f32x4.extract_lane(peaks, 2), f32x4.extract_lane(peaks, 3))) / 127;
    f32.store(scales, scale);
    const inverse = f32x4.splat(scale > 0 ? 1 / scale : 0);
    for (let at: usize = 0; at < 1024; at += 64) {
      const from = values + at;
      const low = i16x8.narrow_i32x4_s(rounded(from, inverse), rounded(from + 16, inverse));
      const high = i16x8.narrow_i32x4_s(rounded(from + 32, inverse), rounded(from + 48, inverse));
      v128.store(out + (at >> 2), i8x16.narrow_i16x8_s(low, high));
    }
    values += 1024;
    out += 256;
    scales += 4;
  }
}

@inline
function rounded(from: usize, factor: v128): v128 {
  return i32x4.trunc_sat_f32x4_s(f32x4.nearest(f32x4.mul(v128.load(from), factor)));
}

/** The sum of squares in float64, lane by lane in float32 over blocks of 256. */
export function sumSquares(values: usize, count: i32): f64 {
  const end = values + ((<usize>count) << 2);
  let total: f64 = 0;
  while (values < end) {
    let a = f32x4.splat(0);
    let b = f32x4.splat(0);
    for (let at: usize = 0; at < 1024; at += 32) {
      const x = v128.load(values + at);
      const y = v128.load(values + at, 16);
      a = f32x4.add(a, f32x4.mul(x, x));
      b = f32x4.add(b, f32x4.mul(y, y));
    }
    const c = f32x4.add(a, b);
    total += <f64>f32x4.extract_lane(c, 0) + <f64>f32x4.extract_lane(c, 1);
    total += <f64>f32x4.extract_lane(c, 2) + <f64>f32x4.extract_lane(c, 3);
    values += 1024;
  }
  return total;
}

/** 1 where an element is NaN or infinite: such times zero is NaN, and no other is. */
export function notFinite(values: usize, count: i32): i32 {
  const end = values + ((<usize>count) << 2);
  const zero = f32x4.splat(0);
  let seen = zero;
  while (values < end) {
    seen = f32x4.add(seen, f32x4.mul(zero, v128.load(values)));
    seen = f32x4.add(seen, f32x4.mul(zero, v128.load(values, 16)));
    seen = f32x4.add(seen, f32x4.mul(zero, v128.load(values, 32)));
    seen = f32x4.add(seen, f32x4.mul(zero, v128.load(values, 48)));
    values += 64;
  }
  return v128.any_true(f32x4.ne(seen, seen)) ? 1 : 0;
}

/** p -= rate * scale * g */
export function sgd(p: usize, g: usize, count: i32, rate: f32, scale: f32): void {
  const factor = f32x4.splat(rate * scale);
  const end = p + ((<usize>count) << 2);
  while (p < end) {
    v128.store(p, f32x4.sub(v128.load(p), f32x4.mul(factor, v128.load(g))));
    v128.store(p, f32x4.sub(v128.load(p, 16), f32x4.mul(factor, v128.load(g, 16))), 16);
    p += 32;
    g += 32;
  }
}

/** v = momentum v + scale g; p -= rate v, or with Nesterov rate (scale g + momentum v). */
export function momentum(
  p: usize,
  v: usize,
  g: usize,
  count: i32,
  rate: f32,
  factor: f32,
  nesterov: i32,
  scale: f32,
): void {
  const end = p + ((<usize>count) << 2);
  const r = f32x4.splat(rate);
  const m = f32x4.splat(factor);
  const s = f32x4.splat(scale);
  while (p < end) {
    const gradient = f32x4.mul(s, v128.load(g));
    const next = f32x4.add(f32x4.mul(m, v128.load(v)), gradient);
    v128.store(v, next);
    const direction = nesterov ? f32x4.add(gradient, f32x4.mul(m, next)) : next;
    v128.store(p, f32x4.sub(v128.load(p), f32x4.mul(r, direction)));
    p += 16;
    v += 16;
    g += 16;
  }
}

/**
 * Adam with the decay apart (AdamW): `rate` is the learning rate over 1 - beta1^t, `spread` the root
 * of 1 - beta2^t, `decay` the learning rate times the weight decay.
 */
export function adam(
  p: usize,
  first: usize,
  second: usize,
  g: usize,
  count: i32,
  rate: f32,
  spread: f32,
  beta1: f32,
  beta2: f32,
  epsilon: f32,
  decay: f32,
  scale: f32,
): void {
  const end = p + ((<usize>count) << 2);
  const b1 = f32x4.splat(beta1);
  const a1 = f32x4.splat(1 - beta1);
  const b2 = f32x4.splat(beta2);
  const a2 = f32x4.splat(1 - beta2);
  const r = f32x4.splat(rate);
  const d = f32x4.splat(spread);
  const e = f32x4.splat(epsilon);
  const kept = f32x4.splat(1 - decay);
  const s = f32x4.splat(scale);
  while (p < end) {
    const gradient = f32x4.mul(s, v128.load(g));
    const m = f32x4.add(f32x4.mul(b1, v128.load(first)), f32x4.mul(a1, gradient));
    const squared = f32x4.mul(gradient, gradient);
    const v = f32x4.add(f32x4.mul(b2, v128.load(second)), f32x4.mul(a2, squared));
    v128.store(first, m);
    v128.store(second, v);
    const root = f32x4.add(f32x4.div(f32x4.sqrt(v), d), e);
    const step = f32x4.div(f32x4.mul(r, m), root);
    v128.store(p, f32x4.sub(f32x4.mul(v128.load(p), kept), step));
    p += 16;
    first += 16;
    second += 16;
    g += 16;
  }
}
