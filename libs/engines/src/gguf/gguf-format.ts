/**
 * One metadata value with the type it has in the file. The layout is that of GGUF version 3,
 * little-endian (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Arrays of arrays,
 * which llama.cpp refuses too, are not supported.
 */
export type GgufValue =
  | { readonly type: GgufNumberType; readonly value: number }
  | { readonly type: "uint64" | "int64"; readonly value: bigint }
  | { readonly type: "bool"; readonly value: boolean }
  | { readonly type: "string"; readonly value: string }
  | { readonly type: "array"; readonly items: "bool"; readonly value: readonly boolean[] }
  | { readonly type: "array"; readonly items: "string"; readonly value: readonly string[] }
  | { readonly type: "array"; readonly items: GgufNumberType; readonly value: readonly number[] }
  | {
      readonly type: "array";
      readonly items: "uint64" | "int64";
      readonly value: readonly bigint[];
    };

type GgufNumberType =
  | "uint8"
  | "int8"
  | "uint16"
  | "int16"
  | "uint32"
  | "int32"
  | "float32"
  | "float64";

/** The types a value or an array's item may have. */
export type GgufScalarType = GgufNumberType | "uint64" | "int64" | "bool" | "string";

/** Scalar types by their number in the file; 9 is the array. */
export const SCALAR_TYPES: readonly (GgufScalarType | "array")[] = [
  "uint8",
  "int8",
  "uint16",
  "int16",
  "uint32",
  "int32",
  "float32",
  "bool",
  "string",
  "array",
  "uint64",
  "int64",
  "float64",
];

/** Bytes of each fixed-size scalar. */
export const SCALAR_BYTES: Readonly<Record<Exclude<GgufScalarType, "string">, number>> = {
  uint8: 1,
  int8: 1,
  uint16: 2,
  int16: 2,
  uint32: 4,
  int32: 4,
  float32: 4,
  bool: 1,
  uint64: 8,
  int64: 8,
  float64: 8,
};

/** "GGUF", little-endian. */
export const GGUF_MAGIC = 0x46554747;
/** The version this library writes. */
export const GGUF_VERSION = 3;
/** The alignment of tensor data where `general.alignment` does not say another. */
export const DEFAULT_ALIGNMENT_BYTES = 32;
/** ggml's GGML_MAX_DIMS. */
export const MAX_DIMENSIONS = 4;

/** How a tensor type is stored: `blockItems` values take `blockBytes` bytes. */
export interface TensorLayout {
  readonly name: string;
  readonly blockItems: number;
  readonly blockBytes: number;
}

/** Tensor types by their number in the file (enum ggml_type of ggml.h). */
export const TENSOR_LAYOUTS: ReadonlyMap<number, TensorLayout> = new Map(
  (
    [
      [0, "F32", 1, 4],
      [1, "F16", 1, 2],
      [2, "Q4_0", 32, 18],
      [3, "Q4_1", 32, 20],
      [6, "Q5_0", 32, 22],
      [7, "Q5_1", 32, 24],
      [8, "Q8_0", 32, 34],
      [9, "Q8_1", 32, 40],
      [10, "Q2_K", 256, 84],
      [11, "Q3_K", 256, 110],
      [12, "Q4_K", 256, 144],
      [13, "Q5_K", 256, 176],
      [14, "Q6_K", 256, 210],
      [15, "Q8_K", 256, 292],
      [16, "IQ2_XXS", 256, 66],
      [17, "IQ2_XS", 256, 74],
      [18, "IQ3_XXS", 256, 98],
      [19, "IQ1_S", 256, 50],
      [20, "IQ4_NL", 32, 18],
      [21, "IQ3_S", 256, 110],
      [22, "IQ2_S", 256, 82],
      [23, "IQ4_XS", 256, 136],
      [24, "I8", 1, 1],
      [25, "I16", 1, 2],
      [26, "I32", 1, 4],
      [27, "I64", 1, 8],
      [28, "F64", 1, 8],
      [29, "IQ1_M", 256, 56],
      [30, "BF16", 1, 2],
      [34, "TQ1_0", 256, 54],
      [35, "TQ2_0", 256, 66],
      [39, "MXFP4", 32, 17],
      [40, "NVFP4", 64, 36],
    ] as const
  ).map(([id, name, blockItems, blockBytes]) => [id, { name, blockItems, blockBytes }]),
);

/** `offset` rounded up to a multiple of `alignment`. */
export function alignUp(offset: number, alignment: number): number {
  return Math.ceil(offset / alignment) * alignment;
}
