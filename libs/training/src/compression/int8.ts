/** Values that share one scale. */
export const INT8_BLOCK = 256;

/** Blocks of 256 values as integers -127..127 and one scale each: value = scale * integer. */
export interface Int8Blocks {
  readonly integers: Int8Array;
  /** One for each block, the last of which may be short. */
  readonly scales: Float32Array;
}

/** Rounds each value to the nearest of 255 steps of its block's greatest magnitude. */
export function toInt8(values: Float32Array): Int8Blocks {
  const integers = new Int8Array(values.length);
  const scales = new Float32Array(Math.ceil(values.length / INT8_BLOCK));
  for (let block = 0; block < scales.length; block++) {
    const begin = block * INT8_BLOCK;
    const end = Math.min(values.length, begin + INT8_BLOCK);
    let greatest = 0;
    for (let i = begin; i < end; i++) greatest = Math.max(greatest, Math.abs(values[i] ?? 0));
    const scale = Math.fround(greatest / 127);
    scales[block] = scale;
    const inverse = scale > 0 ? 1 / scale : 0;
    for (let i = begin; i < end; i++) integers[i] = roundToEven((values[i] ?? 0) * inverse);
  }
  return { integers, scales };
}

export function fromInt8({ integers, scales }: Int8Blocks): Float32Array {
  return Float32Array.from(integers, (integer, i) => {
    return integer * (scales[Math.floor(i / INT8_BLOCK)] ?? 0);
  });
}

/** As WebAssembly's f32x4.nearest does, so that both give the same bytes. */
function roundToEven(value: number): number {
  const rounded = Math.round(value);
  const tie = Math.abs(value - Math.trunc(value)) === 0.5;
  const even = tie && rounded % 2 !== 0 ? rounded - 1 : rounded;
  return Math.max(-127, Math.min(127, even));
}
