/** Multiples of 1/1024 in [-1, 1), exact in float32; tools/torch-reference.py has the same. */
export function pattern(salt: number, length: number): Float32Array {
  return Float32Array.from({ length }, (_, i) => ((i * 7919 + salt * 104_729) % 2048) / 1024 - 1);
}
