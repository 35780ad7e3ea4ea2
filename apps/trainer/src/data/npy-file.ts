import { cut, fault, quoted } from "./data-files.ts";

/** Numbers row by row, with names where the file has them. */
export interface Table {
  readonly path: string;
  readonly names: readonly string[] | undefined;
  readonly columns: number;
  readonly values: Float32Array;
}

/** Readers of the element types, little-endian, as NumPy names them. */
const READERS: Readonly<
  Record<string, { readonly bytes: number; read(data: DataView, at: number): number }>
> = {
  "<f4": { bytes: 4, read: (data, at) => data.getFloat32(at, true) },
  "<f8": { bytes: 8, read: (data, at) => data.getFloat64(at, true) },
  "<i4": { bytes: 4, read: (data, at) => data.getInt32(at, true) },
  "<i8": { bytes: 8, read: (data, at) => Number(data.getBigInt64(at, true)) },
  "|u1": { bytes: 1, read: (data, at) => data.getUint8(at) },
};

const MAGIC = "\x93NUMPY";

/**
 * A table in NumPy's format, versions 1 to 3
 * (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html). Throws an AppError
 * `invalid_value` that names the file.
 */
export function readNpy(path: string, bytes: Buffer): Table {
  if (bytes.toString("latin1", 0, MAGIC.length) !== MAGIC || bytes.length < 12) {
    throw fault(path, "does not begin as a .npy file does");
  }
  const isFirst = bytes[6] === 1;
  const start = isFirst ? 10 : 12;
  const length = isFirst ? bytes.readUInt16LE(8) : bytes.readUInt32LE(8);
  const header = bytes.toString("latin1", start, start + length);
  const type = /'descr': *'([^']+)'/.exec(header)?.[1] ?? "";
  const reader = READERS[type];
  if (!reader) {
    throw fault(
      path,
      `has elements of the type ${quoted(type)}: use ${Object.keys(READERS).join(", ")}`,
    );
  }
  if (!/'fortran_order': *False/.test(header)) {
    throw fault(path, "is stored by columns: save it with numpy.ascontiguousarray");
  }
  const shape = (/'shape': *\(([^)]*)\)/.exec(header)?.[1] ?? "")
    .split(",")
    .filter((part) => part.trim() !== "")
    .map(Number);
  const [rows = 0, columns = 0] = shape;
  if (shape.length !== 2 || columns < 1) {
    throw fault(path, `has the shape (${cut(shape.join(", "))}): a table has rows and columns`);
  }
  const begin = start + length;
  if (bytes.length !== begin + rows * columns * reader.bytes) {
    throw fault(path, "is shorter or longer than its header says");
  }
  const data = new DataView(bytes.buffer, bytes.byteOffset + begin, bytes.length - begin);
  const values = new Float32Array(rows * columns);
  for (let at = 0; at < values.length; at++) {
    const value = reader.read(data, at * reader.bytes);
    if (!Number.isFinite(Math.fround(value))) {
      const [row, column] = [Math.floor(at / columns), at % columns];
      const why = Number.isFinite(value) ? ", which is too large for a float32" : "";
      throw fault(path, `has ${value} in row ${row + 1}, column ${column + 1}${why}`);
    }
    values[at] = value;
  }
  return { path, names: undefined, columns, values };
}
